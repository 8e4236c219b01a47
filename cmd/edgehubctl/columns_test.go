package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

// fits fails for lines of more than 80 columns, which a terminal wraps. Only a name may be longer, on a
// line of its own, with its kind.
func fits(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := cli.Columns(line); n > 80 && strings.Count(strings.TrimSpace(line), " ") > 1 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func helpOf(t *testing.T, command string) string {
	t.Helper()
	text, err := help.ReadFile("help/" + command + ".txt")
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func TestHelpFitsATerminal(t *testing.T) {
	whole := helpOf(t, name)
	fits(t, whole)
	for _, c := range new(call).program().Commands {
		text := helpOf(t, c.Name)
		if fits(t, text); !strings.Contains(text, "\nExit codes: ") {
			t.Errorf("%s: the help lacks the exit codes", c.Name)
		}
		if !strings.Contains(whole, "  edgehubctl "+c.Name+" ") {
			t.Errorf("%s is not in the help of edgehubctl", c.Name)
		}
		for _, flag := range c.Flags {
			if flag != "namespace" && !strings.Contains(text, "--"+flag) {
				t.Errorf("the help of %s lacks --%s", c.Name, flag)
			}
		}
	}
}

// busy is a hub that has something for each table, of pods with these names.
func busy(t *testing.T, namespace, short, long, revision, image, text string) *fakeHub {
	yes := corev1.ConditionTrue
	lagging := pod(namespace, long, oldRevision, targetOf("web="+image+":v2"), needs(yes, newRevision), images(corev1.ConditionFalse, "PrepullRegistryUnreachable", newRevision), crashes(12, ""))
	lagging.Spec.Containers[0].Image = image + ":v1"
	next := time.Now().Add(time.Hour)
	access := api.PodAccess{Addresses: []string{"169.254.2.1:10268", "[fd00::2:1]:10268"}, ClusterIP: &api.ClusterIP{},
		Pods: []api.PodRoute{{Namespace: namespace, Name: long, Route: api.Bypass}, {Namespace: namespace, Name: long, Route: api.Proxied, Proxy: text}}}
	pull := api.ImagePull{Namespace: namespace, Pod: long, UID: "u", Revision: revision, State: api.Failed,
		Images: []api.Image{{Image: image + "@sha256:" + strings.Repeat("0123456789abcdef", 4), State: api.Failed, LastError: text, NextRetry: &next, Attempts: 3}}}
	upgrade := func(state api.UpgradeState) api.Upgrade {
		return api.Upgrade{Namespace: namespace, Pod: long, UID: "u", Action: api.UpgradeAction, Revision: revision, State: state, Next: &next, Message: text}
	}
	return newFakeHub(t).
		on("GET", "/pods", podList(pod(namespace, short, newRevision, needs(corev1.ConditionFalse, newRevision)), lagging, pod("kube-system", "proxy-2", "x"))).
		on("GET", api.Readyz, answersWith(200, "OK, offline since 2026-01-01T10:00:00Z: no apiserver can be reached, and the node is served from the cache")).
		on("GET", api.ImagePulls, sends(api.ImagePullList{Items: []api.ImagePull{pull}})).
		on("GET", api.Upgrades, sends(api.UpgradeList{Items: []api.Upgrade{upgrade(api.Scheduled), upgrade(api.Dropped)}})).
		on("GET", api.Cache, sends(map[string]any{
			"cloud":     api.CloudState{Since: ago(3 * time.Hour), APIServers: []api.UpstreamState{{Address: "https://apiserver.edge.example.com:6443", Since: ago(time.Hour), Error: text}}},
			"views":     []map[string]any{{"user": "system:serviceaccount:" + namespace + ":default", "resource": "configmaps.v1", "complete": true, "objects": 7, "bytes": 5 * mib, "updated": ago(time.Hour)}, {"resource": "x"}},
			"podAccess": access, "transforms": []string{"apiserver-service", "root-ca", "kubeconfig-of-kubelet", "default-namespace"},
		})).
		on("GET", api.HoldPath(namespace, long), sends(api.Hold{Namespace: namespace, Pod: long, Until: next, Reason: text})).
		on("GET", api.HistoryPath(namespace, long), sends(api.History{Items: []api.Revision{{Revision: revision, Since: ago(99 * time.Hour), Current: true, Images: []string{image + ":v1", image + "-sidecar:v1"}}}})).
		on("GET", api.Events, sends(api.EventList{Items: []api.Event{
			{Namespace: namespace, Kind: "Pod", Name: long, Type: "Warning", Reason: "FailedToRetrieveImagePullSecret", Message: text, Last: ago(time.Hour)},
			{Kind: "Node", Name: "edge-1", Type: "Normal", Reason: revision, Message: "Node edge-1 status is now: NodeReady", Last: ago(99 * time.Hour)},
		}})).
		on("POST", api.WebCodes, sends(api.Code{Code: strings.Repeat("k", 26), Expires: next}))
}

func TestOutputFitsATerminal(t *testing.T) {
	// These have no tables, and tests of their own.
	without := []string{"pull", "upgrade", "import", "cancel", "rollback", "bundle", "completion", "logs", "exec", "restart"}
	longPod := strings.Repeat("camera-", 12) + "x7k2p"
	for kind, tt := range map[string]struct{ namespace, short, long, revision, image, text string }{
		"realistic names": {"shop", "web-x7k2p", "web-backend-9xk4d", "7598db76d4", "registry.example.com/shop/web",
			"dial tcp 203.0.113.77:443: connect: connection refused, after three attempts"},
		"long names": {strings.Repeat("n", 40), "db-0", longPod, strings.Repeat("camera-", 7) + "7598db76d4",
			"registry.factory-17.europe.example.com:5000/a/path/with/many/parts/web", strings.Repeat("word", 30)},
		"wide characters": {"shop", "web-x7k2p", "web-backend-9xk4d", "7598db76d4", "registry.example.com/shop/web",
			"卡车在路上，一个小时以后再升级。" + strings.Repeat("请等一等", 20)},
	} {
		h := busy(t, tt.namespace, tt.short, tt.long, tt.revision, tt.image, tt.text)
		for _, c := range new(call).program().Commands {
			if slices.Contains(without, c.Name) {
				continue
			}
			args := []string{c.Name}
			if c.Args != nil {
				args = append(args, tt.namespace+"/"+tt.long)
			}
			t.Run(fmt.Sprint(c.Name, " with ", kind), func(t *testing.T) {
				got := h.edgehubctl(t, args...)
				if fits(t, got.out+got.err); got.code != cli.Done || len(got.out) < 30 {
					t.Errorf("got exit code %d and\n%s%s", got.code, got.out, got.err)
				}
			})
		}
	}
}
