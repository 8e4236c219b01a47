package rollout

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

const forbidden = `"pods \"pod1\" is forbidden: not today"`

// refuses has the apiserver refuse the deletions planned for these nodes, as the
// controller would record them for the next plan.
func (w *world) refuses(inARow int, nodes ...string) {
	w.t.Helper()
	if w.refused == nil {
		w.refused = map[types.UID]*Refusal{}
	}
	for _, n := range nodes {
		pod := w.on(n)
		w.refused[pod.UID] = &Refusal{Message: forbidden, Until: w.now.Add(time.Minute)}
		delete(w.deleted, pod.UID)
	}
	w.inARow = inARow
}

func TestARefusedPodDelaysNoOther(t *testing.T) {
	w := newWorld(t, 4)
	w.ds.Annotations[api.MaxUnavailableAnnotation] = "1"
	w.expect("n1")
	w.refuses(1, "n1")
	for _, n := range []string{"n2", "n3", "n4"} {
		p := w.expect(n)
		if got := state(t, &p, "n1"); got.State != Pending || !got.Refused || !strings.Contains(got.Reason, forbidden) {
			t.Errorf("n1 is %+v", got)
		}
		w.upgrade(n, true)
	}
	p := w.expect()
	if !p.Wake.Equal(w.now.Add(time.Minute)) {
		t.Errorf("wake at %v, want when n1 may be tried again", p.Wake)
	}
	w.pass(time.Minute)
	w.expect("n1")
}

// When it may be tried again, it is the last one all the same.
func TestAPodThatWasRefusedComesLast(t *testing.T) {
	w := newWorld(t, 3)
	w.ds.Annotations[api.MaxUnavailableAnnotation] = "1"
	w.expect("n1")
	w.refuses(1, "n1")
	w.pass(time.Hour)
	w.expect("n2")
}

func TestAPartitionKeepsPodsThatMayNotBeDeleted(t *testing.T) {
	w := newWorld(t, 3)
	w.ds.Annotations[api.PartitionAnnotation] = "1"
	w.ds.Annotations[api.MaxUnavailableAnnotation] = "3"
	w.expect("n1", "n2")
	w.refuses(1, "n1")
	p := w.expect("n3")
	if got := state(t, &p, "n1"); got.State != HeldByPartition {
		t.Errorf("n1 is %+v", got)
	}
}

func TestARolloutThatMayDeleteNothingMakesNoProgress(t *testing.T) {
	for name, tt := range map[string]struct {
		arrange     func(*world)
		progressing bool
		says        []string
	}{
		"one refusal, and others to try": {func(w *world) { w.refuses(1, "n1") }, true, []string{"1 keeps its pod (n1: its deletion is refused: " + forbidden}},
		"every pod is refused":           {func(w *world) { w.refuses(3, "n1", "n2", "n3") }, false, []string{"3 keep their pods (n1, n2, n3; on n1, its deletion is refused: " + forbidden}},
		"a single one is left": {func(w *world) {
			w.refuses(1, "n1")
			w.upgrade("n2", true)
			w.upgrade("n3", true)
		}, false, []string{"2 of 3 nodes updated, 1 pending, 1 keeps its pod", "less and less often"}},
		"so many in a row that the next would be": {func(w *world) {
			w.ds.Annotations[api.MaxUnavailableAnnotation] = "1"
			w.refuses(stalled, "n1", "n2")
			w.refused[w.on("n3").UID] = &Refusal{Until: w.now.Add(time.Second)} // which nobody has refused
		}, false, nil},
		"one serves nobody and may not be deleted": {func(w *world) {
			w.upgrade("n2", true)
			w.upgrade("n3", true)
			w.ready(w.on("n1").UID, false)
			w.refuses(1, "n1")
		}, false, []string{"1 unavailable (n1), 1 keeps its pod (n1: "}},
		"another is being updated": {func(w *world) {
			w.refuses(5, "n1", "n2")
			w.upgrade("n3", false)
		}, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3)
			tt.arrange(w)
			p := NewPlan(w.input())
			c := Conditions(&p)[1]
			want, reason := corev1.ConditionFalse, ReasonRefused
			if tt.progressing {
				want, reason = corev1.ConditionTrue, ReasonUpdating
			}
			if c.Status != want || c.Reason != reason {
				t.Errorf("%s is %s because of %s, want %s because of %s: %s", c.Type, c.Status, c.Reason, want, reason, c.Message)
			}
			for _, words := range tt.says {
				if !strings.Contains(c.Message, words) {
					t.Errorf("it says %s, want %s", c.Message, words)
				}
			}
		})
	}
}

// A plan takes its own deletions for done. Taken back, it is as it is for somebody who
// looks again.
func TestRevert(t *testing.T) {
	w := newWorld(t, 4)
	w.ds.Annotations[api.MaxUnavailableAnnotation] = "2"
	w.ready(w.on("n4").UID, false)
	p := w.expect("n4", "n1")
	for _, d := range p.Delete {
		p.Revert(d, &Refusal{Message: forbidden})
	}
	w.refuses(0, "n1", "n4")
	again := w.expect("n2")
	for _, n := range []string{"n1", "n4"} {
		if got, want := state(t, &p, n), state(t, &again, n); got != want {
			t.Errorf("%s is %+v, and after another look %+v", n, got, want)
		}
	}
	if p.Unavailable != 1 || p.Refused != 2 || p.Counts[Unavailable] != 1 || p.Counts[Pending] != 3 {
		t.Errorf("%d unavailable, %d refused, counts %v", p.Unavailable, p.Refused, p.Counts)
	}
}

func TestAPodWithAnUnknownOutcomeIsNotCalledTerminating(t *testing.T) {
	w := newWorld(t, 2)
	w.expect("n1")
	w.refused = map[types.UID]*Refusal{w.on("n1").UID: {Message: forbidden}}
	p := w.expect()
	if got := state(t, &p, "n1"); got.State != Unavailable || got.Reason != "it is not known whether its pod was deleted: "+forbidden {
		t.Errorf("n1 is %+v", got)
	}
}

func TestOnlySomeNodesThatKeepTheirPodsAreNamed(t *testing.T) {
	w := newWorld(t, 12)
	w.ds.Annotations[api.MaxUnavailableAnnotation] = "12"
	var nodes []string
	for n := range w.nodes {
		nodes = append(nodes, n)
	}
	slices.Sort(nodes)
	w.refuses(12, nodes...)
	p := NewPlan(w.input())
	if got := p.Summary(); !strings.Contains(got, "12 keep their pods (n1, n10, n11, n12, n2 and 7 more; on n1, ") || len(got) > 500 {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

// Otherwise those that are refused again and again would take the turn of one that is not.
func TestTheRefusedPodThatWaitedLongestIsTriedFirst(t *testing.T) {
	w := newWorld(t, 3)
	w.ds.Annotations[api.MaxUnavailableAnnotation] = "1"
	w.refuses(3, "n3")
	w.pass(time.Second)
	w.refuses(3, "n1", "n2")
	w.pass(time.Hour)
	w.expect("n3")
}
