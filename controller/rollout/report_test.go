package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// reportOn returns the report that readers find on ds when r was written there.
func reportOn(t *testing.T, ds *appsv1.DaemonSet, r *Report) *Report {
	t.Helper()
	ds.Annotations[api.ReportAnnotation] = r.Encode()
	read, current := ReportOn(ds)
	if read == nil || !current {
		t.Fatalf("got %v, current: %t", read, current)
	}
	return read
}

func TestAReportSaysWhereEachNodeStands(t *testing.T) {
	w := newWorld(t, 6)
	w.ds.Annotations[api.MaxUnavailableAnnotation] = "2"
	w.upgrade("n1", true)
	w.turn("n2", corev1.ConditionUnknown)
	p := w.plan()
	r := reportOn(t, w.ds, NewReport(w.ds, &p, ReasonUpdating, nil))
	if r.Revision != target || r.Reason != ReasonUpdating || r.Message != p.Summary() || *r.Limits != (Limits{Ready: 5, Unavailable: 2, Max: 2}) {
		t.Errorf("got %+v", r)
	}
	why := NewReport(w.ds, &p, ReasonLacking, []MissingPod{{Node: "n3", Why: "refused"}})
	if g := why.StateOf("n3", oldRevision); g.Reason != "refused" || len(why.Missing) != 1 {
		t.Errorf("n3 is %+v, want why it lacks its pod", g)
	}
	for _, n := range p.Nodes {
		if g := r.StateOf(n.Name, n.Revision); g.State != n.State || g.Reason != n.Reason {
			t.Errorf("%s is %s (%s), and the report says %s (%s)", n.Name, n.State, n.Reason, g.State, g.Reason)
		}
	}
}

// A reader must not take a report from before a change for one about it.
func TestAReportIsOfBeforeAChange(t *testing.T) {
	tests := map[string]struct {
		change  func(*appsv1.DaemonSet)
		current bool
	}{
		"nothing":                    {func(*appsv1.DaemonSet) {}, true},
		"another template":           {func(ds *appsv1.DaemonSet) { ds.Generation++ }, false},
		"an option more":             {func(ds *appsv1.DaemonSet) { ds.Annotations[api.PartitionAnnotation] = "" }, false},
		"an option of another value": {func(ds *appsv1.DaemonSet) { ds.Annotations[api.MaxUnavailableAnnotation] = "2" }, false},
		"an option less":             {func(ds *appsv1.DaemonSet) { delete(ds.Annotations, api.MaxUnavailableAnnotation) }, false},
		"an annotation of others":    {func(ds *appsv1.DaemonSet) { ds.Annotations["theirs"] = "1" }, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ds := &appsv1.DaemonSet{}
			ds.Annotations = map[string]string{api.MaxUnavailableAnnotation: "1"}
			ds.Annotations[api.ReportAnnotation] = NewAwaitReport(ds).Encode()
			tt.change(ds)
			if r, current := ReportOn(ds); r == nil || r.Reason != ReasonNewTemplate || current != tt.current {
				t.Errorf("got %+v, current: %t", r, current)
			}
		})
	}
}

func TestAReportThatCannotBeRead(t *testing.T) {
	for _, value := range []string{"", "{", "null"} {
		ds := &appsv1.DaemonSet{}
		ds.Annotations = map[string]string{api.ReportAnnotation: value}
		if r, current := ReportOn(ds); r != nil || current {
			t.Errorf("%q: got %+v", value, r)
		}
	}
}

// plain is a node in a state.
func plain(state State, reason string, i int) NodeStatus {
	revision := oldRevision
	if state == Updated {
		revision = target
	}
	return NodeStatus{Name: fmt.Sprintf("a-node-with-quite-a-long-name-%05d", i), State: state, Reason: reason, Revision: revision}
}

func (p *Plan) count() {
	p.Counts = map[State]int{}
	for _, n := range p.Nodes {
		p.Counts[n.State]++
	}
}

func TestAReportHasABoundedSize(t *testing.T) {
	p := Plan{Revision: target}
	for i := range 20_000 {
		switch {
		case i < 20:
			p.Nodes = append(p.Nodes, plain(Unavailable, "no pod", i))
		case i%5 == 0:
			p.Nodes = append(p.Nodes, plain(Updated, "", i))
		case i%50 == 1:
			p.Nodes = append(p.Nodes, plain(HeldByOwner, strings.Repeat(fmt.Sprint("because of ", i, " "), 100), i))
		default:
			p.Nodes = append(p.Nodes, plain(Pending, "", i))
		}
	}
	var late []MissingPod
	for range 1000 {
		late = append(late, MissingPod{Node: "n", Since: time.Unix(0, 0), Why: strings.Repeat("y", maxReason)})
	}
	ds := &appsv1.DaemonSet{}
	ds.Annotations = map[string]string{}
	p.count()
	r := reportOn(t, ds, NewReport(ds, &p, ReasonUpdating, late))
	if n := len(r.Encode()); n > 20_000 {
		t.Errorf("it has %d bytes", n)
	}
	for _, g := range r.Groups {
		if g.State != Updated && len(g.Nodes) < maxNamed && g.Count > maxNamed {
			t.Errorf("%s names %d of %d nodes, want the first ones", g.State, len(g.Nodes), g.Count)
		}
	}
	if c := r.Counts; c[Unavailable] != 20 || c[HeldByOwner] != 399 || c[Updated] != 3996 || c[Pending] != 15585 {
		t.Errorf("got counts %v", c)
	}
	if g := r.StateOf("another", oldRevision); g.State != "" {
		t.Errorf("a node that may be in a group that is left out is %+v", g)
	}
	for _, n := range p.Nodes[:20] {
		if g := r.StateOf(n.Name, n.Revision); g.State != Unavailable || g.Reason != "no pod" {
			t.Errorf("%s is %+v", n.Name, g)
		}
	}
}

// Of a group that is too large to be listed, a reader still finds its nodes, as long as there is only one.
func TestNodesThatAreNotListed(t *testing.T) {
	many := func(states ...State) *Report {
		var p Plan
		for _, state := range states {
			for i := range 1000 {
				p.Nodes = append(p.Nodes, plain(state, "", i))
			}
		}
		p.Revision = target
		p.count()
		return NewReport(&appsv1.DaemonSet{}, &p, ReasonUpdating, nil)
	}
	tests := map[string]struct {
		report   *Report
		revision string
		want     State
	}{
		"an old pod, one such group":      {many(Updated, Pending), oldRevision, Pending},
		"a new pod":                       {many(Updated, Pending), target, Updated},
		"an old pod, two such groups":     {many(Updated, Pending, HeldBySelector), oldRevision, ""},
		"a new pod that may not be Ready": {many(Updated, Unavailable), target, ""},
		"an old pod, of no group":         {many(Updated), oldRevision, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.report.StateOf("another", tt.revision).State; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
