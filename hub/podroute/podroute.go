// Package podroute determines which pods of a node use the hub as their apiserver, and which
// bypass it.
//
// A container has the address of its apiserver in its environment, from its start to its end.
// So the answer is in the container runtime, and neither a clock nor a restart of the hub makes
// it wrong. Left out are
//
//   - pods without a token for the apiserver (automountServiceAccountToken: false), and static
//     pods, which never have one: what such pods do at the apiserver, if anything, does not
//     depend on their environment;
//   - pods of which no container runs: kubelet gives a container its environment when it starts.
//
// Pods on the host's network have the same environment as others, and count.
//
// kubelet gives each container the address of the Service default/kubernetes in several variables,
// of which a pod may set some itself: by its spec, by a ConfigMap or Secret (envFrom), or by the
// image, where kubelet gives none. A container that sets the address so that it differs from
// kubelet's other variables counts only if no other container of the pod has kubelet's. One that
// sets all of them to the same cannot be told from others: that shows when the pod has been
// restarted, and has the address again.
//
// A proxy in a container's environment gets what the container sends to the hub, unless NO_PROXY covers
// the hub's address. Package proxy/transform sees to that where the settings are the pod's own.
//
// What a program knows from elsewhere than its environment is not seen: one that dials https://kubernetes.default.svc
// counts as its environment says. Whether a pod would trust the hub there depends on when its containers were started,
// and not on its route: see [Suspects].
package podroute

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/proxy/transform"
)

// Runtime reads the environment of running containers.
type Runtime interface {
	Environments(ctx context.Context, names ...string) ([]engine.Environment, error)
}

// Variables that kubelet sets in all containers, from the Service default/kubernetes
// (k8s.io/kubernetes, pkg/kubelet/envvars).
const (
	hostVariable = "KUBERNETES_SERVICE_HOST" // where programs look for the apiserver
	portVariable = "KUBERNETES_PORT"         // tcp://HOST:PORT
)

// SetsAddress is why a pod should not be deleted that has the address from itself, and what to do.
const SetsAddress = "it sets " + hostVariable + " itself, by its spec, a ConfigMap, a Secret or its image: change it there"

// Variables are the names that Of asks a Runtime for.
func Variables() []string {
	return append([]string{hostVariable, portVariable}, transform.ProxyVariables()...)
}

// Suspects returns the IDs, in order, of running containers that were started without the hub's CA. Some are of
// pods that Of leaves out.
func Suspects(ctx context.Context, r Runtime, hub []netip.Addr) ([]string, error) {
	environments, err := r.Environments(ctx, Variables()...)
	if err != nil {
		return nil, fmt.Errorf("find out which pods trust the hub: %w", err)
	}
	var ids []string
	for _, e := range environments {
		if _, ok := e.Values[hostVariable]; ok && !trusts(e, hub) {
			ids = append(ids, e.ID)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// trusts reports whether a container has the hub's CA. kubelet reads that through the hub, as it does the
// address that it gives to each container, whatever address the container sets itself.
func trusts(e engine.Environment, hub []netip.Addr) bool {
	given, err := netip.ParseAddr(givenHost(e))
	return err == nil && slices.Contains(hub, given)
}

// givenHost returns the apiserver's address that kubelet gave to a container, or "" if there is none.
func givenHost(e engine.Environment) string {
	service, err := url.Parse(e.Values[portVariable])
	if err != nil {
		return ""
	}
	return service.Hostname()
}

// Of returns the routes of pods by their environment, Hub, Proxy or Bypass, by namespace and name. hub are
// the hub's servers for pods. kubelet is the version of the node's, as its Node has it: what becomes of a
// proxy in a restart depends on it.
func Of(ctx context.Context, pods []corev1.Pod, r Runtime, hub []netip.AddrPort, kubelet string) ([]api.PodRoute, error) {
	environments, err := r.Environments(ctx, Variables()...)
	if err != nil {
		return nil, fmt.Errorf("find out which pods use the hub: %w", err)
	}
	running := map[string][]engine.Environment{} // by pods' UIDs
	for _, e := range environments {
		if _, ok := e.Values[hostVariable]; ok {
			running[e.PodUID] = append(running[e.PodUID], e)
		}
	}
	routes, addresses := []api.PodRoute{}, addressesOf(hub)
	for i := range pods {
		pod := &pods[i]
		containers := running[string(pod.UID)]
		if len(containers) == 0 || isStatic(pod) || !hasToken(pod) {
			continue
		}
		counted := slices.DeleteFunc(slices.Clone(containers), func(e engine.Environment) bool { return setsAddress(pod, e) })
		itself := len(counted) == 0
		if itself {
			counted = containers
		}
		owner := metav1.GetControllerOf(pod)
		one := api.PodRoute{
			Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID),
			Route: routeOf(counted, addresses), SetsAddress: itself, Keep: keep(pod, owner, itself),
			Distrusts: slices.ContainsFunc(containers, func(e engine.Environment) bool { return !trusts(e, addresses) }),
		}
		setProxy(&one, pod, counted, hub, transform.KeepsContainers(kubelet))
		if owner != nil {
			one.Owner = owner.Kind + "/" + owner.Name
		}
		routes = append(routes, one)
	}
	slices.SortFunc(routes, func(a, b api.PodRoute) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return routes, nil
}

func addressesOf(servers []netip.AddrPort) (all []netip.Addr) {
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return all
}

// routeOf returns the route of containers of a pod.
func routeOf(containers []engine.Environment, hub []netip.Addr) api.Route {
	for _, c := range containers {
		if address, err := netip.ParseAddr(c.Values[hostVariable]); err != nil || !slices.Contains(hub, address) {
			return api.Bypass
		}
	}
	return api.ThroughHub
}

// setProxy sets what the proxies of a pod's containers mean for its route. mends reports whether kubelet
// reads a NO_PROXY with the hub's address where the pod's spec has the proxy.
func setProxy(route *api.PodRoute, pod *corev1.Pod, containers []engine.Environment, hub []netip.AddrPort, mends bool) {
	behind := route.Route == api.ThroughHub
	for _, e := range containers {
		host, err := netip.ParseAddr(e.Values[hostVariable])
		i := slices.IndexFunc(hub, func(s netip.AddrPort) bool { return s.Addr().Is4() == host.Is4() })
		if err != nil || i < 0 || !transform.UsesProxy(e.Values, hub[i]) {
			continue
		}
		if behind {
			route.Route = api.Proxied
		}
		if !mends || !restartMends(pod, e.Container, addressesOf(hub)) {
			route.Proxy = fmt.Sprintf("its container %s uses a proxy for %v: add that address to NO_PROXY where the pod has its proxy from", e.Container, hub[i].Addr())
			route.Keep = cmp.Or(route.Keep, route.Proxy)
			return
		}
		if behind {
			route.Proxy = fmt.Sprintf("its container %s uses a proxy for %v until it restarts", e.Container, hub[i].Addr())
		}
	}
}

// restartMends reports whether a container has a NO_PROXY with the hub's addresses when it has been restarted.
func restartMends(pod *corev1.Pod, container string, hub []netip.Addr) bool {
	return slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
		return c.Name == container && !slices.Equal(transform.WithoutProxy(&c, hub), c.Env)
	})
}

// isStatic reports whether a pod is kubelet's copy of a static pod.
func isStatic(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror
}

// hasToken reports whether a pod has a token for the apiserver: of a projected volume, or of a
// Secret in the place of one.
func hasToken(pod *corev1.Pod) bool {
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == "" {
				return true
			}
		}
	}
	for _, c := range pod.Spec.Containers {
		for _, m := range c.VolumeMounts {
			if m.MountPath == "/var/run/secrets/kubernetes.io/serviceaccount" {
				return true
			}
		}
	}
	return false
}

// keep returns why a pod should not be deleted in order to change its route, or "".
func keep(pod *corev1.Pod, owner *metav1.OwnerReference, setsAddress bool) string {
	need := api.Condition(pod, api.NeedCondition)
	switch {
	case setsAddress:
		return SetsAddress
	case owner == nil:
		return "it has no controller that would replace it"
	case owner.Kind == "Job":
		return "its Job would begin again; it ends by itself"
	case need != nil && need.Status == corev1.ConditionTrue:
		return "a restart would upgrade it, which is for the node's owner to decide: edgehubctl upgrade " + pod.Namespace + "/" + pod.Name
	}
	return ""
}

// setsAddress reports whether a container of pod has its apiserver's address from elsewhere than
// kubelet: its spec says so, or kubelet's other variable is of another address, or not there.
func setsAddress(pod *corev1.Pod, e engine.Environment) bool {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name == e.Container && slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == hostVariable }) {
			return true
		}
	}
	service, err := url.Parse(e.Values[portVariable])
	return err == nil && service.Hostname() != e.Values[hostVariable]
}
