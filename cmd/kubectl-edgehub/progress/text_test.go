package progress

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
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
	held := func(states ...rollout.State) *Report {
		w := newWorld(advanced, nil)
		for i, state := range states {
			w.fleet(fmt.Sprint("n", i), 1, state, "")
		}
		return w.evaluate(t)
	}
	group := func(reason string, count int, nodes ...string) rollout.Group {
		return rollout.Group{State: rollout.Unavailable, Reason: reason, Count: count, Nodes: nodes}
	}
	awaiting := rollout.Group{State: rollout.Pending, AwaitsImages: true, Count: 2}
	limits := &Report{Limits: &Limits{ReadyNodes: 4, MaxUnavailable: "1", MaxUnavailableNodes: 1}}
	tests := map[string]struct {
		got  string
		want string
	}{
		"one holder":    {byHolder(held(rollout.HeldByPause, rollout.HeldByPause), nil), "by the pause"},
		"a taint":       {byHolder(held(rollout.HeldByPlacement), nil), "by placement"},
		"two holders":   {byHolder(held(rollout.HeldByPause, rollout.HeldBySelector), nil), "1 by the pause, 1 by annotation apps.openyurt.io/rollout-node-selector"},
		"two reasons":   {byReason(&Report{}, []rollout.Group{group("y", 2, "n2", "n3"), group("x", 1, "n1")}), "y (n2, n3); x (n1)"},
		"many reasons":  {byReason(&Report{}, []rollout.Group{group("a", 1, "n1"), group("b", 1, "n2"), group("c", 1, "n3"), group("d", 1, "n4"), group("e", 1, "n5")}), "a (n1); b (n2); c (n3); 2 more reasons, see --nodes"},
		"no reason":     {byReason(&Report{}, []rollout.Group{group("", 2, "n1", "n2")}), "n1, n2"},
		"many nodes":    {byName(&Report{}, []rollout.Group{group("", 8, "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8")}), "n1, n2, n3, n4, n5 and 3 more"},
		"not all named": {byReason(&Report{}, []rollout.Group{group("x", 800, "n1", "n2", "n3", "n4", "n5")}), "x (n1, n2, n3, n4, n5 and 795 more)"},
		"images":        {byLimit(limits, []rollout.Group{awaiting}), "until their images are there"},
		"images and turns": {byLimit(limits, []rollout.Group{awaiting, {State: rollout.Pending, Count: 1}}),
			"2 until their images are there; 0 of at most 1 unavailable (1 of 4 Ready nodes)"},
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
		"in proportion":                   {[]int{5, 5}, 10, []int{5, 5}},
		"the smaller ones are rounded up": {[]int{2, 1}, 10, []int{6, 4}},
		"nothing of what is not there":    {[]int{3, 0}, 10, []int{10, 0}},
		"one node of thousands is seen":   {[]int{4999, 1, 0}, 20, []int{19, 1, 0}},
		"all of them":                     {[]int{1, 1, 1, 1, 996}, 10, []int{1, 1, 1, 1, 6}},
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
	r := newWorld(advanced, nil).fleet("a", 199, rollout.Updated, "").fleet("b", 1, rollout.Pending, "").evaluate(t)
	if got := r.text(80); !strings.Contains(got, ".]  99%") {
		t.Errorf("got\n%s\nwant a bar with 99%%", got)
	}
}

func TestTable(t *testing.T) {
	want := strings.TrimPrefix(`
NODE   STATE               POD      READY   STATUS             RESTARTS   REVISION   REASON
a1     updated             web-a1   1/1     Running            0          7c9b       -
b1     pending             web-b1   1/1     Running            0          5d8f       its images are being pulled
c      unavailable         -        -       -                  -          -          no pod
d1     unavailable         web-d1   0/1     ImagePullBackOff   0          7c9b       container web: ImagePullBackOff
z1     waiting_not_ready   web-z1   1/1     Running            0          5d8f       node is not Ready
`, "\n")
	w := newWorld(advanced, nil).fleet("a", 1, rollout.Updated, "").fleet("b", 1, rollout.Pending, "its images are being pulled").
		fleet("d", 1, rollout.Unavailable, pullBackOff).fleet("z", 1, rollout.WaitingNotReady, "node is not Ready")
	w.says.Groups = append(w.says.Groups, rollout.Group{State: rollout.Unavailable, Reason: "no pod", Count: 1, Nodes: []string{"c"}})
	if got := w.evaluate(t).table(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAStatefulSet(t *testing.T) {
	r := database().evaluate(t)
	want := strings.TrimPrefix(`
statefulset.apps/db in shop: OTA to revision 7c9b
updated          1  of 3
unavailable      1  no pod (db-2)
for owners       1  db-1
held             0
waiting: the owner of a node upgrades its pod, by a POST to the node's own API; nothing is done from here

NODE   STATE               POD    READY   STATUS    RESTARTS   REVISION   REASON
a      updated             db-0   1/1     Running   0          7c9b       -
b      waiting_for_owner   db-1   1/1     Running   0          5d8f       -
-      unavailable         db-2   -       -         -          -          no pod
`, "\n")
	if got := r.text(0) + "\n" + r.table(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	w := database()
	w.pod("db-10", "a", newRevision)
	if r := w.evaluate(t); r.Nodes[3].Pod != "db-10" {
		t.Errorf("got %+v, want the pods by their ordinals", r.Nodes)
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
	w := newWorld(advanced, nil).fleet("a", 1, rollout.Updated, "").because(rollout.ReasonUpdating, "1 of 2 nodes updated, 1 pending")
	show(w.evaluate(t))
	show(w.evaluate(t))
	show(w.because(rollout.ReasonComplete, "2 of 2 nodes updated").evaluate(t))
	const held = "1 pod held by placement (node z has a taint)"
	w.because(rollout.ReasonHeldByPlacement, "2 of 3 nodes updated, "+held).condition(api.CompleteCondition, "complete, "+held)
	show(w.evaluate(t))
	want := "updating: 1 of 2 nodes updated, 1 pending\n" +
		"complete: 2 of 2 nodes updated; every node runs the target revision\n" +
		"complete: 2 of 3 nodes updated, 1 pod held by placement (node z has a taint)\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestALogOfNodesHasALineForEachNodeThatChanges(t *testing.T) {
	var out bytes.Buffer
	show := logView(&out, true)
	w := newWorld(advanced, nil).fleet("a", 1, rollout.Updated, "").fleet("b", 1, rollout.Pending, "")
	show(w.evaluate(t))
	out.Reset()
	w.pods[1].Labels["controller-revision-hash"], w.says.Groups = newRevision, []rollout.Group{{State: rollout.Updated, Count: 2}}
	show(w.evaluate(t))
	if got := out.String(); !strings.HasPrefix(got, "b1 updated web-b1 1/1 Running 0 7c9b -\n") || strings.Contains(got, "a1") {
		t.Errorf("got\n%swant a line for b1 and none for a1", got)
	}
}

func TestWhatIsMissingComesFirst(t *testing.T) {
	w := newWorld(advanced, nil).fleet("a", 1, rollout.Updated, "")
	w.says.Groups = append(w.says.Groups, rollout.Group{State: rollout.Unavailable, Reason: "the apiserver refuses it: no", Count: 1, Nodes: []string{"z"}})
	w.says.Missing = []rollout.MissingPod{{Node: "z", Since: start, Why: "the apiserver refuses it: no"}}
	r := w.evaluate(t)
	const first = "MISSING on z since 2026-01-01T10:00:00Z: the apiserver refuses it: no\ndaemonset.apps/web in shop: "
	if got := r.text(0); !strings.HasPrefix(got, first) {
		t.Errorf("got\n%s", got)
	}
	if r.State != Missing || r.State.ExitCode() != ExitHeldUp {
		t.Errorf("it is %s", r.State)
	}
}

// What a node, or an apiserver, has written stands in the line that it is about.
func TestNoTextFromElsewhereLooksLikeALine(t *testing.T) {
	for _, strategy := range []string{daemonset.OTA.String(), daemonset.AdvancedRollingUpdate.String()} {
		const forged = "why\ndone: forged"
		w := newWorld(strategy, nil).fleet("a", 3, rollout.Unavailable, forged)
		w.says.Missing = []rollout.MissingPod{{Node: "a1", Why: forged}}
		r := w.evaluate(t)
		r.Warnings, r.Advice, r.Message = []string{forged}, forged, forged
		var log strings.Builder
		logView(&log, true)(r)
		for view, text := range map[string]string{"text": r.text(0), "list": Table([]*Report{r}), "table": r.table(), "log": log.String()} {
			if strings.Contains(text, "\ndone: forged") || !strings.Contains(text, "why done: forged") {
				t.Errorf("%s of %s:\n%s", view, strategy, text)
			}
		}
	}
}
