package install

import (
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/podrestart"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

const itself = "it sets KUBERNETES_SERVICE_HOST itself, by its spec, a ConfigMap, a Secret or its image: change it there"

// behindPod is a pod that has the hub's address.
func behindPod(uid string, setsAddress, selected bool) podrestart.Pod {
	p := podrestart.Pod{PodRoute: nodeapi.PodRoute{Namespace: "shop", Name: uid, UID: uid, Route: nodeapi.ThroughHub, SetsAddress: setsAddress}, Selected: selected}
	if setsAddress {
		p.Keep = itself
	}
	return p
}

func TestAnUninstallSaysHowPodsStopUsingTheHub(t *testing.T) {
	for name, tt := range map[string]struct {
		pod  podrestart.Pod
		want string
	}{
		"it has the address from kubelet":                 {behindPod("web", false, false), "FAIL  pod shop/web uses the hub and would lose its apiserver: --restart-pods=shop restarts it"},
		"it has it from kubelet, and will be restarted":   {behindPod("web", false, true), "ok    pod shop/web uses the hub, and will be restarted"},
		"it sets the address itself, by a ConfigMap, say": {behindPod("web", true, false), "FAIL  pod shop/web uses the hub and would lose its apiserver: " + itself + ". Do that first, or say --force"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			(&checks{out: &out}).checkBehind([]podrestart.Pod{tt.pod}, nil, false)
			if !strings.Contains(out.String(), tt.want) {
				t.Errorf("it says %s", &out)
			}
		})
	}
}

// What was restarted when kubelet used the apiserver again, and has the hub's address all the same,
// would have it after the next restart, too.
func TestAPodThatHasTheHubsAddressAgainSetsItItself(t *testing.T) {
	before := []podrestart.Pod{behindPod("bare", false, false), behindPod("web", false, true)}
	for name, tt := range map[string]struct {
		after []podrestart.Pod
		want  string // empty: no error
	}{
		"none":                             {nil, ""},
		"one that was not to be restarted": {before[:1], "pod shop/bare and 0 others use it, and were not to be restarted; --restart-pods=all"},
		"one that came back": {
			[]podrestart.Pod{behindPod("bare", false, false), behindPod("web-again", false, true)},
			"pod shop/web-again and 1 others use it, and a restart changes nothing: it sets KUBERNETES_SERVICE_HOST itself",
		},
	} {
		t.Run(name, func(t *testing.T) {
			podrestart.MarkNew(tt.after, before)
			err := needed(tt.after)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("it says %v", err)
			}
		})
	}
}
