package install

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// A mesh is a service mesh whose rules, in a pod's network namespace, lead what the pod sends to a sidecar.
type mesh struct {
	name       string
	containers []string // of a pod in the mesh; one of them is there
	annotation string   // of a pod: ports that are left alone
	loses      string   // what of the pods has no apiserver
	also       string   // what else has to know the port
}

// meshes returns those that are known, with the names that their own injectors give.
func meshes() []mesh {
	return []mesh{
		{
			"Istio", []string{"istio-proxy", "istio-init", "istio-validation"}, "traffic.sidecar.istio.io/excludeOutboundPorts",
			"their init containers, and with outboundTrafficPolicy REGISTRY_ONLY all of them,", "",
		},
		{
			"Linkerd", []string{"linkerd-proxy", "linkerd-init", "linkerd-network-validator"}, "config.linkerd.io/skip-outbound-ports",
			"their init containers, and Linkerd's control plane, whose own rules leave 443 and 6443 alone,", "; its control plane needs the Helm value proxyInit.kubeAPIServerPorts with that port, too",
		},
	}
}

// checkMeshes warns of pods that will not reach the hub at all times, since a service mesh leads what is for it to
// a sidecar.
func (c *checks) checkMeshes(ctx context.Context, p *plan) {
	if !p.leadsPods() {
		return
	}
	pods, err := p.cloud.Pods(ctx, p.options.NodeName)
	if err != nil {
		return // an upgrade without the cloud, or checkOnline has said it
	}
	for _, m := range meshes() {
		if pod, n := m.catches(pods, p.config.ProxySecurePort); n > 0 {
			c.warn("%s", m.problem(pod, n, p.config.ProxySecurePort))
		}
	}
}

// problem says what will not work.
func (m *mesh) problem(pod string, n, port int) string {
	return fmt.Sprintf("pods are in %s (%s; %d in all): their sidecars take what is for the hub's port %d, so %s have no apiserver once they restart, with the cloud, too, unless they have the annotation %s: %q%s (docs/install.md#service-meshes)",
		m.name, pod, n, port, m.loses, m.annotation, strconv.Itoa(port), m.also)
}

// catches returns how many pods are in the mesh whose rules do not leave the port alone, and one of them.
func (m *mesh) catches(pods []corev1.Pod, port int) (first string, n int) {
	for i := range pods {
		pod := &pods[i]
		in := slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
			return slices.Contains(m.containers, c.Name)
		})
		if !in || slices.Contains(strings.Split(strings.ReplaceAll(pod.Annotations[m.annotation], " ", ""), ","), strconv.Itoa(port)) {
			continue
		}
		if n++; first == "" {
			first = pod.Namespace + "/" + pod.Name
		}
	}
	return first, n
}
