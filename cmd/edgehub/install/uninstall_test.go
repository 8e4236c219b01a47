package install

import (
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/ota/api"
)

func TestAnUninstallSaysWhatBecomesOfPods(t *testing.T) {
	const itself = "it sets KUBERNETES_SERVICE_HOST itself: change it there"
	fromKubelet := api.PodRoute{Namespace: "shop", Name: "web", Route: api.ThroughHub}
	fromItself := api.PodRoute{Namespace: "shop", Name: "web", Route: api.ThroughHub, SetsAddress: true, Keep: itself}
	for name, tt := range map[string]struct {
		pod    api.PodRoute
		force  bool
		want   string
		failed bool
	}{
		"it has the address from kubelet":                 {fromKubelet, false, "ok    pod shop/web uses the hub, which stays until it is gone", false},
		"it sets the address itself, by a ConfigMap, say": {fromItself, false, "FAIL  pod shop/web uses the hub, also after a restart: " + itself + ". Do that first, or say --force", true},
		"with --force": {fromKubelet, true, "note  pod shop/web uses the hub, and loses its apiserver: delete it", false},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			c := &checks{out: &out}
			c.checkBehind([]api.PodRoute{tt.pod}, nil, tt.force)
			if !strings.Contains(out.String(), tt.want) || c.failed != tt.failed {
				t.Errorf("it says %s", &out)
			}
		})
	}
}
