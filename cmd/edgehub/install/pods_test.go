package install

import (
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/ota/api"
)

func TestWhatIsPrintedOfPodsThatHaveToRestart(t *testing.T) {
	pod := func(name, owner string, route api.Route, proxy, keep string) api.PodRoute {
		return api.PodRoute{Namespace: "shop", Name: name, Owner: owner, Route: route, Proxy: proxy, Keep: keep}
	}
	// An owner's name and kind are of the pod's author, and may be any text.
	all := []api.PodRoute{
		pod("bare", "", api.Bypass, "", "it has no controller that would replace it"),
		pod("behind", "DaemonSet/behind", api.ThroughHub, "", ""),
		pod("camera", "StatefulSet/camera", api.Bypass, "", "a restart would upgrade it, which is for the node's owner to decide"),
		pod("evil", "X/x\n  reboot", api.Bypass, "", ""),
		pod("kube-proxy", "DaemonSet/kube-proxy", api.Bypass, "", ""),
		pod("proxied", "ReplicaSet/proxied", api.Proxied, "its container a uses a proxy", "its container a uses a proxy"),
	}
	for route, want := range map[api.Route]string{
		api.Bypass: `  kubectl delete pod --namespace=shop kube-proxy
  kubectl delete pod --namespace=shop evil
  not shop/bare: it has no controller that would replace it
  not shop/camera: a restart would upgrade it, which is for the node's owner to decide
  not shop/proxied: its container a uses a proxy
`,
		api.ThroughHub: `  kubectl delete pod --namespace=shop behind
  kubectl delete pod --namespace=shop proxied
`,
	} {
		var out strings.Builder
		if printRestarts(&out, withRoute(all, route)); out.String() != want {
			t.Errorf("%s: got\n%s", route, &out)
		}
	}
}
