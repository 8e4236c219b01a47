package progress

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

func TestTextOnNoTerminal(t *testing.T) {
	want := strings.TrimPrefix(`
daemonset.apps/web in shop: AdvancedRollingUpdate to revision 7c9b
updated          5  of 11
unavailable      2  container web: ImagePullBackOff (d1, d2)
pending          2  2 of at most 2 unavailable (20% of 9 Ready nodes)
not ready        2  c1, c2
held             0
updating: the next pods follow when fewer than 2 Ready nodes are unavailable
`, "\n")
	if got := mixed().evaluate(t).text(0); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTextOnATerminal(t *testing.T) {
	want := strings.TrimPrefix(`
daemonset.apps/web in shop: AdvancedRollingUpdate to revision 7c9b
  [##########!!!!....----]  45%
  # updated          5  of 11
  ! unavailable      2  container web: ImagePullBackOff (d1, d2)
  . pending          2  2 of at most 2 unavailable (20% of 9 Ready nodes)
  - not ready        2  c1, c2
  = held             0
updating: the next pods follow when fewer than 2 Ready nodes are unavailable
`, "\n")
	if got := mixed().evaluate(t).text(22 + barFrame); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestDetails(t *testing.T) {
	held := func(s ...rollout.State) []Node {
		var out []Node
		for _, state := range s {
			out = append(out, Node{State: state})
		}
		return out
	}
	because := func(reasons ...string) []Node {
		var out []Node
		for i, reason := range reasons {
			out = append(out, Node{Node: fmt.Sprintf("n%d", i+1), Reason: reason})
		}
		return out
	}
	tests := map[string]struct {
		got  string
		want string
	}{
		"one holder":                     {byHolder(&Report{}, held(rollout.HeldByPause, rollout.HeldByPause)), "by the pause"},
		"a taint":                        {byHolder(&Report{}, held(rollout.HeldByPlacement)), "by placement"},
		"two holders":                    {byHolder(&Report{}, held(rollout.HeldByPause, rollout.HeldBySelector)), "1 by the pause, 1 by annotation apps.openyurt.io/rollout-node-selector"},
		"the most frequent reason first": {byReason(&Report{}, because("x", "y", "y")), "y (n2, n3); x (n1)"},
		"many reasons":                   {byReason(&Report{}, because("a", "b", "c", "d", "e")), "a (n1); b (n2); c (n3); 2 more reasons, see --nodes"},
		"no reason":                      {byReason(&Report{}, because("", "")), "n1, n2"},
		"many nodes":                     {byName(&Report{}, because(make([]string, 8)...)), "n1, n2, n3, n4, n5 and 3 more"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.got != tt.want {
				t.Errorf("got %q, want %q", tt.got, tt.want)
			}
		})
	}
}

func TestSharesOfTheBar(t *testing.T) {
	tests := map[string]struct {
		counts []int
		width  int
		want   []int
	}{
		"in proportion":                         {[]int{5, 5}, 10, []int{5, 5}},
		"the remainder goes to the largest one": {[]int{2, 1}, 10, []int{7, 3}},
		"nothing of what is not there":          {[]int{3, 0}, 10, []int{10, 0}},
		"one node of thousands is seen":         {[]int{4999, 1, 0}, 20, []int{19, 1, 0}},
		"all of them":                           {[]int{1, 1, 1, 1, 996}, 10, []int{1, 1, 1, 1, 6}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := shares(tt.counts, tt.width); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestABarIsNotFullTooEarly(t *testing.T) {
	r := newWorld(advanced, nil).fleet("a", 199, newRevision).fleet("b", 1, oldRevision).evaluate(t)
	if got := r.text(80); !strings.Contains(got, ".]  99%") {
		t.Errorf("got\n%s\nwant a bar with 99%%", got)
	}
}

func TestTable(t *testing.T) {
	want := strings.TrimPrefix(`
NODE   STATE               POD      READY   STATUS             RESTARTS   REVISION   REASON
a1     updated             web-a1   1/1     Running            0          7c9b       -
b1     pending             web-b1   1/1     Running            0          5d8f       it is next
c      unavailable         -        -       -                  -          -          no pod
d      unavailable         web-d    0/1     ImagePullBackOff   0          7c9b       container web: ImagePullBackOff
z      waiting_not_ready   web-z    1/1     Running            0          5d8f       node is not Ready
`, "\n")
	w := newWorld(advanced, map[string]string{rollout.MaxUnavailableAnnotation: "3"}).fleet("a", 1, newRevision).fleet("b", 1, oldRevision)
	w.node("c", corev1.ConditionTrue)
	w.node("d", corev1.ConditionTrue)
	broken(w.pod("d", newRevision, corev1.ConditionFalse))
	got := withNotReady(w).evaluate(t).table()
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Scripts depend on these names.
func TestJSON(t *testing.T) {
	var out bytes.Buffer
	jsonView(&out, false)(mixed().evaluate(t))
	var got struct {
		Kind, Namespace, Name, Strategy, TargetRevision, State, Message, Advice string

		Limits struct {
			ReadyNodes, UnavailableNodes, MaxUnavailableNodes int
			MaxUnavailable                                    string
		}
		Counts map[string]int
		Nodes  []struct {
			Node, State, Reason, Pod, Revision, PodStatus string
			ReadyContainers, Containers, Restarts         int
		}
	}
	decoder := json.NewDecoder(&out)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Kind != "DaemonSet" || got.Namespace != "shop" || got.Name != "web" || got.Strategy != advanced || got.TargetRevision != newRevision || got.State != "updating" {
		t.Errorf("got %+v", got)
	}
	if got.Limits.ReadyNodes != 9 || got.Limits.UnavailableNodes != 2 || got.Limits.MaxUnavailableNodes != 2 || got.Limits.MaxUnavailable != "20%" {
		t.Errorf("got limits %+v", got.Limits)
	}
	if got.Counts["updated"] != 5 || got.Counts["waiting_not_ready"] != 2 || len(got.Counts) != len(rollout.States()) || len(got.Nodes) != 11 {
		t.Errorf("got counts %v of %d nodes, want all states", got.Counts, len(got.Nodes))
	}
}

func TestALogHasALineForEachChange(t *testing.T) {
	var out bytes.Buffer
	show := logView(&out, false)
	w := newWorld(advanced, nil).fleet("a", 1, newRevision).fleet("b", 1, oldRevision)
	show(w.evaluate(t))
	show(w.evaluate(t))
	w.Pods[1].Labels["controller-revision-hash"] = newRevision
	show(w.evaluate(t))
	show(withTainted(w).evaluate(t))
	want := "updating: 1 of 2 nodes updated, 1 pending\n" +
		"complete: 2 of 2 nodes updated; every node runs the target revision\n" +
		"complete: 2 of 3 nodes updated, 1 pod held by placement (node z has the taint line=3:NoSchedule, which the new version does not tolerate)\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestALogOfNodesHasALineForEachNodeThatChanges(t *testing.T) {
	var out bytes.Buffer
	show := logView(&out, true)
	w := newWorld(advanced, nil).fleet("a", 1, newRevision).fleet("b", 1, oldRevision)
	show(w.evaluate(t))
	out.Reset()
	w.Pods[1].Labels["controller-revision-hash"] = newRevision
	show(w.evaluate(t))
	if got := out.String(); !strings.HasPrefix(got, "b1 updated web-b1 1/1 Running 0 7c9b -\n") || strings.Contains(got, "a1") {
		t.Errorf("got\n%swant a line for b1 and none for a1", got)
	}
}

// The annotation of a Node counts only while the node has no pod of this workload.
func TestWhatIsMissingComesFirst(t *testing.T) {
	for _, strategy := range []string{daemonset.OTA.String(), daemonset.AdvancedRollingUpdate.String()} {
		w := newWorld(strategy, nil).fleet("a", 3, newRevision)
		for _, node := range w.Nodes {
			node.Annotations = map[string]string{upgrade.MissingAnnotation: upgrade.EncodeMissing([]upgrade.Missing{
				{Kind: "DaemonSet", Namespace: "shop", Name: "other", Why: "another"},
				{Kind: "DaemonSet", Namespace: "shop", Name: "web", Since: start, Why: "the apiserver refuses it: no"},
			})}
		}
		w.Pods = w.Pods[1:]
		r := w.evaluate(t)
		const first = "MISSING on a1 since 2026-01-01T10:00:00Z: the apiserver refuses it: no\ndaemonset.apps/web in shop: "
		if got := r.text(0); !strings.HasPrefix(got, first) || !strings.Contains(got, "the apiserver refuses it: no (a1)") || strings.Contains(got, "another") {
			t.Errorf("%s: got\n%s", strategy, got)
		}
		if r.State != Missing || r.State.ExitCode() != ExitHeldUp {
			t.Errorf("%s: it is %s", strategy, r.State)
		}
	}
}

// What a node, or an apiserver, has written stands in the line that it is about.
func TestNoTextFromElsewhereLooksLikeALine(t *testing.T) {
	for _, strategy := range []string{daemonset.OTA.String(), daemonset.AdvancedRollingUpdate.String()} {
		r := newWorld(strategy, nil).fleet("a", 3, newRevision).evaluate(t)
		const forged = "why\ndone: forged"
		r.Missing, r.Warnings, r.Advice, r.Message, r.State = []MissingPod{{Node: "a1", Why: forged}}, []string{forged}, forged, forged, Missing
		for i := range r.Nodes {
			r.Nodes[i].State, r.Nodes[i].Reason = rollout.Unavailable, forged
		}
		var log strings.Builder
		logView(&log, true)(r)
		for view, text := range map[string]string{"text": r.text(0), "list": Table([]*Report{r}), "table": r.table(), "log": log.String()} {
			if strings.Contains(text, "\ndone: forged") || !strings.Contains(text, "why done: forged") {
				t.Errorf("%s of %s:\n%s", view, strategy, text)
			}
		}
	}
}
