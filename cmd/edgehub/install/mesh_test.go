package install

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodsOfAMeshAreNamed(t *testing.T) {
	pod := func(name, excluded string, containers ...string) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		if excluded != "" {
			p.Annotations = map[string]string{"traffic.sidecar.istio.io/excludeOutboundPorts": excluded, "config.linkerd.io/skip-outbound-ports": excluded}
		}
		for _, c := range containers {
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: c})
		}
		return p
	}
	pods := []corev1.Pod{
		pod("plain", "", "app"), pod("done", "5432, 10268", "istio-init"), pod("a", "", "istio-init", "app"), pod("b", "110268", "istio-proxy"), pod("c", "443", "linkerd-init"),
	}
	for i, want := range []string{
		"pods are in Istio (shop/a; 2 in all): ", "pods are in Linkerd (shop/c; 1 in all): ",
	} {
		m := meshes()[i]
		first, n := m.catches(pods, 10268)
		if got := m.problem(first, n, 10268); !strings.HasPrefix(got, want) || strings.Contains(got, "\n") || !strings.Contains(got, m.annotation+`: "10268"`) {
			t.Errorf("%q does not begin with %q", got, want)
		}
		if _, n := m.catches(pods[:2], 10268); n != 0 {
			t.Errorf("%s: %d pods that are in no mesh, or leave the port alone", m.name, n)
		}
	}
}
