package rollout

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// hold annotates the only pod of a node as its hub would whose clock is off by some time.
func (w *world) hold(node string, length, off time.Duration) {
	since := metav1.NewTime(w.now.Add(off).Truncate(time.Second))
	w.holdAs(node, api.PodHold{Since: since, Until: metav1.NewTime(since.Add(length)), Reason: "driving"}.Encode())
}

// holdAs sets the annotation, and removes it if value is "".
func (w *world) holdAs(node, value string) {
	pod := w.on(node).DeepCopy()
	pod.Annotations = map[string]string{}
	if value != "" {
		pod.Annotations[api.HoldAnnotation] = value
	}
	w.pods[pod.UID] = pod
}

func TestAHeldPodIsKeptUntilItsHoldEnds(t *testing.T) {
	const years = 10 * 365 * 24 * time.Hour
	for name, off := range map[string]time.Duration{"the right clock": 0, "a clock that is fast": years, "a clock that is slow": -years} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.hold("n1", 2*time.Hour, off)
			p := w.expect()
			n := state(t, &p, "n1")
			end := w.now.Add(2 * time.Hour).UTC().Format(time.RFC3339)
			latest := w.now.Add(api.DefaultMaxHold).UTC().Format(time.RFC3339)
			want := "held by its owner until " + end + ", at most until " + latest + ` ("driving")`
			if n.State != HeldByOwner || n.Reason != want || !p.Wake.Equal(w.now.Add(2*time.Hour)) {
				t.Errorf("got %s: %s, wake at %v; want %s", n.State, n.Reason, p.Wake, want)
			}
			w.pass(2*time.Hour - time.Second)
			w.expect()
			w.pass(time.Second)
			if p = w.expect("n1"); p.Delete[0].Held != "" {
				t.Errorf("the hold is over, and %s", p.Delete[0].Held)
			}
		})
	}
}

func TestAHeldNodeTakesTheTurnOfNoOther(t *testing.T) {
	for name, keep := range map[string]func(w *world, node string){
		"its owner holds it":                         func(w *world, node string) { w.hold(node, time.Hour, 0) },
		"it was upgraded in place, and is unsettled": func(w *world, node string) { w.unsettled = append(w.unsettled, node) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 6)
			w.ds.Annotations[api.MaxUnavailableAnnotation] = "2"
			w.ds.Annotations[api.PartitionAnnotation] = "3"
			keep(w, "n1") // the first two in the order
			keep(w, "n2")
			w.expect("n3", "n4")
			w.upgrade("n3", true)
			w.upgrade("n4", true)
			p := w.expect("n5") // three of six
			if n := state(t, &p, "n1"); n.State != HeldByOwner && n.State != HeldByPartition {
				t.Errorf("got %+v", n)
			}
			w.upgrade("n5", true)
			if p = w.expect(); p.Counts[HeldByPartition] != 3 {
				t.Errorf("got %v", p.Counts)
			}
		})
	}
}

func TestAHeldPodThatIsNotReadyIsKeptAndCounts(t *testing.T) {
	w := newWorld(t, 3)
	w.ds.Annotations[api.MaxUnavailableAnnotation] = "1"
	w.hold("n1", time.Hour, 0)
	w.ready(w.on("n1").UID, false)
	p := w.expect()
	n := state(t, &p, "n1")
	if n.State != HeldByOwner || !strings.HasSuffix(n.Reason, "; pod is not Ready") || p.Unavailable != 1 {
		t.Errorf("got %+v, %d unavailable", n, p.Unavailable)
	}
	status, reason, message := progress(&p)
	if status || reason != ReasonHeldByOwner || !strings.Contains(message, "1 held by their owners (n1: held by its owner until ") {
		t.Errorf("got %t, %s, %s", status, reason, message)
	}
	w.ds.Annotations[api.MaxUnavailableAnnotation] = "2"
	p = w.expect("n2")
	if _, reason, _ := progress(&p); reason != ReasonUpdating {
		t.Errorf("n2 is updated now, and the reason is %s", reason)
	}
	w.pass(time.Hour)
	w.expect("n1")
}

// What is written is rewritten every half an hour, to hold the pod for ever.
func TestTheMaximumCannotBeStretched(t *testing.T) {
	const maxHold = 3 * time.Hour
	for name, rewrite := range map[string]func(*world){
		"since is now":                    func(w *world) { w.hold("n1", 2*time.Hour, 0) },
		"since is in the future":          func(w *world) { w.hold("n1", 2*time.Hour, 100*time.Hour) },
		"since is long ago":               func(w *world) { w.hold("n1", 1000*time.Hour, -999*time.Hour) },
		"there is no since":               func(w *world) { w.holdAs("n1", `{"until":"2099-01-01T00:00:00Z"}`) },
		"it is removed and set again":     func(w *world) { w.holdAs("n1", ""); w.look(); w.hold("n1", 2*time.Hour, 0) },
		"it is broken and set again":      func(w *world) { w.holdAs("n1", "broken"); w.look(); w.hold("n1", 2*time.Hour, 0) },
		"until is the same for ever":      func(w *world) { w.hold("n1", 200*time.Hour, 0) },
		"only until is moved":             func(w *world) { w.extend("n1", w.now.Add(2*time.Hour)) },
		"since is moved back and forward": func(w *world) { w.hold("n1", 5*time.Hour, -time.Duration(w.now.Minute())*time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.ds.Annotations[api.MaxHoldAnnotation] = maxHold.String()
			first := w.now
			w.hold("n1", 2*time.Hour, 0)
			for w.now.Sub(first) < maxHold {
				w.look()
				w.pass(30 * time.Minute)
				rewrite(w)
			}
			p := w.expect("n1")
			if d := p.Delete[0]; !strings.Contains(d.Held, api.MaxHoldAnnotation+" of the DaemonSet permits 3h0m0s since 2026-") || !strings.HasSuffix(d.Reason, ", though "+d.Held) {
				t.Errorf("its hold is ended, because of %q: %s", d.Held, d.Reason)
			}
		})
	}
}

// extend moves the end of a hold.
func (w *world) extend(node string, until time.Time) {
	h, _, _ := api.HoldOf(w.on(node))
	h.Until = metav1.NewTime(until)
	w.holdAs(node, h.Encode())
}

func TestAHoldAfterAPauseHasTheWholeMaximum(t *testing.T) {
	w := newWorld(t, 1)
	w.ds.Annotations[api.MaxHoldAnnotation] = "3h"
	w.target = oldRevision // nothing to upgrade: every trip has a hold
	for range 5 {
		w.hold("n1", 2*time.Hour, 0)
		w.expect()
		w.pass(2 * time.Hour)
		w.holdAs("n1", "")
		w.expect()
		w.pass(api.HoldPause)
	}
	w.target = target
	w.hold("n1", 2*time.Hour, 0)
	w.expect()
	w.pass(2 * time.Hour)
	w.expect("n1")
}

func TestAfterARestartAHoldCountsSinceItBegan(t *testing.T) {
	w := newWorld(t, 1)
	w.ds.Annotations[api.MaxHoldAnnotation] = "3h"
	w.hold("n1", 4*time.Hour, 0)
	w.expect()
	w.pass(2 * time.Hour)
	w.restart()
	w.expect()
	w.pass(time.Hour - time.Second) // and the node has been seen Ready for long enough
	w.expect()
	w.pass(time.Second)
	w.expect("n1")
}

func TestHoldsThatDoNotCount(t *testing.T) {
	for name, set := range map[string]func(*world){
		"the policy permits none": func(w *world) { w.ds.Annotations[api.MaxHoldAnnotation] = "0s"; w.hold("n1", time.Hour, 0) },
		"it is over":              func(w *world) { w.hold("n1", time.Hour, -time.Hour) },
		"it ends before it began": func(w *world) { w.hold("n1", -time.Hour, 0) },
		"it is no JSON":           func(w *world) { w.holdAs("n1", "yes") },
		"it says nothing":         func(w *world) { w.holdAs("n1", "{}") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			set(w)
			w.expect("n1")
		})
	}
}

func TestASuccessorIsNotHeld(t *testing.T) {
	w := newWorld(t, 1)
	w.hold("n1", time.Hour, 0)
	w.expect()
	w.remove("n1")
	w.addPod("n1", oldRevision, true)
	w.expect("n1")
}

func TestPauseAndPartitionComeBeforeHolds(t *testing.T) {
	for key, tt := range map[string]struct {
		value string
		want  State
	}{api.PausedAnnotation: {"true", HeldByPause}, api.PartitionAnnotation: {"1", HeldByPartition}, api.NodeSelectorAnnotation: {"a=b", HeldBySelector}} {
		w := newWorld(t, 1)
		w.ds.Annotations[key] = tt.value
		w.hold("n1", time.Hour, 0)
		p := w.expect()
		if n := state(t, &p, "n1"); n.State != tt.want {
			t.Errorf("%s: got %s, want %s", key, n.State, tt.want)
		}
	}
}
