package install

import (
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

func TestWhatIsPrintedOfPodsThatHaveToRestart(t *testing.T) {
	pod := func(name, owner string, route nodeapi.Route, proxy, keep string) nodeapi.PodRoute {
		return nodeapi.PodRoute{Namespace: "shop", Name: name, Owner: owner, Route: route, Proxy: proxy, Keep: keep}
	}
	// An owner's name and kind are of the pod's author, and may be any text.
	all := []nodeapi.PodRoute{
		pod("bare", "", nodeapi.Bypass, "", "it has no controller that would replace it"),
		pod("behind", "DaemonSet/behind", nodeapi.ThroughHub, "", ""),
		pod("camera", "StatefulSet/camera", nodeapi.Bypass, "", "a restart would upgrade it, which is for the node's owner to decide"),
		pod("evil", "X/x\n  reboot", nodeapi.Bypass, "", ""),
		pod("kube-proxy", "DaemonSet/kube-proxy", nodeapi.Bypass, "", ""),
		pod("proxied", "ReplicaSet/proxied", nodeapi.Proxied, "its container a uses a proxy", "its container a uses a proxy"),
	}
	for route, want := range map[nodeapi.Route]string{
		nodeapi.Bypass: `  kubectl delete pod --namespace=shop kube-proxy
  kubectl delete pod --namespace=shop evil
  not shop/bare: it has no controller that would replace it
  not shop/camera: a restart would upgrade it, which is for the node's owner to decide
  not shop/proxied: its container a uses a proxy
`,
		nodeapi.ThroughHub: `  kubectl delete pod --namespace=shop behind
  kubectl delete pod --namespace=shop proxied
`,
	} {
		var out strings.Builder
		if printRestarts(&out, withRoute(all, route)); out.String() != want {
			t.Errorf("%s: got\n%s", route, &out)
		}
	}
}
