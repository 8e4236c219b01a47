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
package podroute

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// Runtime reads the environment of running containers.
type Runtime interface {
	Environment(ctx context.Context, name string) ([]engine.Variable, error)
}

// variable is set by kubelet in all containers, from the Service default/kubernetes.
const variable = "KUBERNETES_SERVICE_HOST"

// Of returns the routes of pods, by namespace and name. hub are the hub's addresses for pods.
func Of(ctx context.Context, pods []corev1.Pod, r Runtime, hub []netip.Addr) ([]nodeapi.PodRoute, error) {
	variables, err := r.Environment(ctx, variable)
	if err != nil {
		return nil, fmt.Errorf("find out which pods use the hub: %w", err)
	}
	found := map[string]nodeapi.Route{} // by UID
	for _, v := range variables {
		address, err := netip.ParseAddr(v.Value)
		if err == nil && slices.Contains(hub, address) {
			found[v.PodUID] = cmp.Or(found[v.PodUID], nodeapi.ThroughHub)
		} else {
			found[v.PodUID] = nodeapi.Bypass
		}
	}
	routes := []nodeapi.PodRoute{}
	for i := range pods {
		pod := &pods[i]
		route, runs := found[string(pod.UID)]
		if !runs || isStatic(pod) || !hasToken(pod) {
			continue
		}
		owner := metav1.GetControllerOf(pod)
		one := nodeapi.PodRoute{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Route: route, Keep: keep(pod, owner)}
		if owner != nil {
			one.Owner = owner.Kind + "/" + owner.Name
		}
		routes = append(routes, one)
	}
	slices.SortFunc(routes, func(a, b nodeapi.PodRoute) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return routes, nil
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
func keep(pod *corev1.Pod, owner *metav1.OwnerReference) string {
	need := upgrade.Condition(pod, upgrade.NeedCondition)
	switch {
	case setsAddress(pod):
		return "its spec sets " + variable + ", whatever the node does"
	case owner == nil:
		return "it has no controller that would replace it"
	case owner.Kind == "Job":
		return "its Job would begin again; it ends by itself"
	case need != nil && need.Status == corev1.ConditionTrue:
		return "a restart would upgrade it, which is for the node's owner to decide: edgehubctl upgrade " + pod.Namespace + "/" + pod.Name
	}
	return ""
}

func setsAddress(pod *corev1.Pod) bool {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == variable }) {
			return true
		}
	}
	return false
}
