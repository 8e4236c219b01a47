package rollout

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// newPrepullWorld has images first, and lets all nodes be unavailable unless the
// maximum is set to something else.
func newPrepullWorld(t *testing.T, n int, annotations map[string]string) *world {
	t.Helper()
	w := newWorld(t, n)
	w.ds.Annotations[api.PrepullAnnotation] = "true"
	w.ds.Annotations[api.MaxUnavailableAnnotation] = "100%"
	maps.Copy(w.ds.Annotations, annotations)
	return w
}

// carryOut sets the targets of pods as the plan wants, and returns the nodes whose pods
// have one then.
func (w *world) carryOut(p Plan) []string {
	var changed []string
	for uid, pod := range w.pods {
		pod = pod.DeepCopy()
		pod.Annotations = nil
		if since, ok := p.Pulls[uid]; ok {
			target := api.Target{Revision: p.Revision, Containers: []api.TargetImage{{Name: "app", Image: "app:2"}}, Prepull: &metav1.Time{Time: since}}
			pod.Annotations = map[string]string{api.TargetAnnotation: target.Encode()}
			changed = append(changed, pod.Spec.NodeName)
		}
		w.pods[uid] = pod
	}
	slices.Sort(changed)
	return changed
}

// setTargets makes a plan that deletes nothing, and sets the targets of nodes.
func (w *world) setTargets(want ...string) {
	w.t.Helper()
	if got := w.carryOut(w.expect()); !slices.Equal(got, want) {
		w.t.Fatalf("the nodes %v are told to pull, want %v", got, want)
	}
}

// images sets what a node reports about the images of a revision.
func (w *world) images(node string, status corev1.ConditionStatus, revision, reason string) {
	w.t.Helper()
	pod := w.on(node).DeepCopy()
	pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == api.ImageCondition })
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: api.ImageCondition, Status: status, Reason: reason, Message: api.Message(revision),
	})
	w.pods[pod.UID] = pod
}

const yes, no = corev1.ConditionTrue, corev1.ConditionFalse

func TestAReadyPodIsKeptUntilItsImagesAreThere(t *testing.T) {
	w := newPrepullWorld(t, 3, nil)
	w.setTargets("n1", "n2", "n3")
	p := w.expect()
	if p.AwaitImages != 3 || p.Counts[Pending] != 3 || p.Unavailable != 0 {
		t.Errorf("%s", p.Summary())
	}
	if want := w.now.Add(DefaultPrepullTimeout); !p.Wake.Equal(want) {
		t.Errorf("wake at %v, want %v", p.Wake, want)
	}
	w.pass(time.Minute)
	w.images("n2", no, target, api.ReasonPulling)
	w.expect()
	w.images("n2", yes, target, "")
	w.expect("n2")
	w.upgrade("n2", true)
	p = w.expect()
	if got := w.carryOut(p); !slices.Equal(got, []string{"n1", "n3"}) {
		t.Errorf("%v are told to pull, want n1 and n3", got)
	}
}

func TestWhichConditionsMeanThatImagesAreThere(t *testing.T) {
	tests := map[string]struct {
		status   corev1.ConditionStatus
		revision string
		want     []string
	}{
		"those of the target":            {yes, target, []string{"n1"}},
		"those of the revision before":   {yes, oldRevision, nil},
		"those of a revision in between": {yes, "between", nil},
		"not all of them":                {no, target, nil},
		"nobody knows":                   {corev1.ConditionUnknown, target, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newPrepullWorld(t, 1, nil)
			w.setTargets("n1")
			w.images("n1", tt.status, tt.revision, "")
			w.expect(tt.want...)
		})
	}
}

func TestImagesThatAreThereBeforeTheNodeIsAsked(t *testing.T) {
	w := newPrepullWorld(t, 1, nil)
	w.images("n1", yes, target, "")
	if p := w.expect("n1"); len(p.Pulls) > 0 {
		t.Errorf("a pod that is deleted is to tell its node to pull: %v", p.Pulls)
	}
}

func TestWithoutTheAnnotationNobodyWaitsForImages(t *testing.T) {
	for _, value := range []string{"false", ""} {
		w := newPrepullWorld(t, 2, map[string]string{api.MaxUnavailableAnnotation: "1"})
		w.setTargets("n1", "n2")
		w.ds.Annotations[api.PrepullAnnotation] = value
		if value == "" {
			delete(w.ds.Annotations, api.PrepullAnnotation)
		}
		p := w.expect("n1")
		if changed := w.carryOut(p); len(changed) > 0 {
			t.Errorf("%q: %v are told to pull", value, changed)
		}
	}
}

func TestPodsThatAreNotReadyDoNotWaitForImages(t *testing.T) {
	w := newPrepullWorld(t, 3, nil)
	w.ready(w.on("n2").UID, false)
	if changed := w.carryOut(w.expect("n2")); !slices.Equal(changed, []string{"n1", "n3"}) {
		t.Errorf("%v are told to pull, want those whose pods stay", changed)
	}
}

func TestAPodThatIsReadyForTooShortWaitsForItsImages(t *testing.T) {
	w := newPrepullWorld(t, 2, nil)
	w.ds.Spec.MinReadySeconds = 600
	w.ready(w.on("n1").UID, false)
	w.ready(w.on("n1").UID, true)
	w.pass(time.Minute)
	w.setTargets("n1", "n2")
	p := w.expect()
	if got := state(t, &p, "n1"); got.State != Unavailable || got.AwaitsImages {
		t.Errorf("n1 %+v", got)
	}
	w.images("n1", yes, target, "")
	w.expect("n1")
}

func TestAfterTheTimeoutAPodIsReplacedWithoutItsImages(t *testing.T) {
	w := newPrepullWorld(t, 2, map[string]string{api.PrepullTimeoutAnnotation: "10m"})
	w.setTargets("n1", "n2")
	w.pass(10*time.Minute - time.Second)
	w.expect()
	w.images("n1", no, target, "PrepullRegistryUnreachable")
	w.pass(time.Second)
	p := w.expect("n1", "n2")
	if got := p.Delete[0].Reason; !strings.Contains(got, "could not be pulled yet (RegistryUnreachable)") {
		t.Errorf("n1 goes because %q", got)
	}
}

func TestAnotherTimeoutCountsFromTheSameMoment(t *testing.T) {
	w := newPrepullWorld(t, 1, nil)
	w.setTargets("n1")
	w.pass(5 * time.Minute)
	w.expect()
	w.ds.Annotations[api.PrepullTimeoutAnnotation] = "5m"
	w.expect("n1")
}

func TestANodeThatWasNotReadyGetsTheWholeTimeout(t *testing.T) {
	for name, clock := range map[string]time.Duration{
		"its clock is right":        0,
		"its clock is years behind": -20 * 365 * 24 * time.Hour,
		"its clock is years ahead":  20 * 365 * 24 * time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			w := newPrepullWorld(t, 2, nil)
			w.turn("n2", never)
			w.setTargets("n1", "n2")
			w.pass(2 * time.Hour)
			w.expect("n1")
			w.upgrade("n1", true)
			w.back("n2", clock)
			w.expect()
			w.pass(NodeSettle)
			p := w.expect()
			if want := w.now.Add(DefaultPrepullTimeout - NodeSettle); !p.Wake.Equal(want) {
				t.Errorf("wake at %v, want %v: half an hour after the node was back", p.Wake, want)
			}
			w.pass(DefaultPrepullTimeout - NodeSettle - time.Second)
			w.expect()
			w.pass(time.Second)
			w.expect("n2")
		})
	}
}

// back makes a node Ready, by a clock that is so far ahead.
func (w *world) back(name string, clock time.Duration) {
	w.turn(name, yes)
	w.nodes[name].Status.Conditions[0].LastTransitionTime = metav1.NewTime(w.now.Add(clock))
}

func TestARestartOfTheControllerDoesNotRestartTheTimeout(t *testing.T) {
	w := newPrepullWorld(t, 1, nil)
	w.setTargets("n1")
	w.pass(20 * time.Minute)
	w.restart()
	w.expect()
	w.pass(10*time.Minute - time.Second)
	w.expect()
	w.pass(time.Second)
	w.expect("n1")
}

// Nobody saw it come back, and its own word is all there is.
func TestANodeThatBecameReadyWhileNoControllerRan(t *testing.T) {
	for name, tt := range map[string]struct {
		clock time.Duration // of the node, compared with that of the controller
		left  time.Duration
	}{
		"its clock is right":        {0, 20 * time.Minute},
		"its clock is years behind": {-20 * 365 * 24 * time.Hour, 0},
		"its clock is years ahead":  {20 * 365 * 24 * time.Hour, 30 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPrepullWorld(t, 1, nil)
			w.turn("n1", never)
			w.setTargets("n1")
			w.pass(2 * time.Hour)
			w.back("n1", tt.clock)
			w.pass(10 * time.Minute)
			w.restart()
			w.expect()
			if tt.left > 0 {
				w.pass(tt.left - time.Second)
				w.expect()
			}
			w.pass(max(time.Second, NodeSettle-tt.left))
			w.expect("n1")
		})
	}
}

func TestPodsWithImagesAreReplacedFirst(t *testing.T) {
	w := newPrepullWorld(t, 5, map[string]string{api.MaxUnavailableAnnotation: "2", api.PrepullTimeoutAnnotation: "10m"})
	w.turn("n1", never)
	w.setTargets("n1", "n2", "n3", "n4", "n5")
	w.turn("n1", yes)
	w.expect()
	w.pass(10 * time.Minute)
	w.images("n4", yes, target, "")
	w.images("n5", yes, target, "")
	// n2 and n3 have waited long enough; n1, the oldest, has been back for too short.
	w.turn("n1", never)
	w.turn("n1", yes)
	w.look()
	p := w.expect("n4", "n5")
	if got := state(t, &p, "n2"); got.State != Pending || got.AwaitsImages {
		t.Errorf("n2 %+v, want one that waits for its turn", got)
	}
	w.upgrade("n4", true)
	w.upgrade("n5", true)
	w.pass(NodeSettle)
	p = w.expect("n2", "n3")
	if p.Unavailable != 2 || p.AwaitImages != 1 || !state(t, &p, "n1").AwaitsImages {
		t.Errorf("%d unavailable; %s", p.Unavailable, p.Summary())
	}
}

func TestTheMaximumHoldsForPodsWithImages(t *testing.T) {
	w := newPrepullWorld(t, 4, map[string]string{api.MaxUnavailableAnnotation: "1"})
	w.setTargets("n1", "n2", "n3", "n4")
	for _, n := range []string{"n1", "n2", "n3", "n4"} {
		w.images(n, yes, target, "")
	}
	w.expect("n1")
	w.upgrade("n1", false)
	w.expect()
	w.ready(w.on("n1").UID, true)
	w.expect("n2")
}

func TestAPartitionIsFilledByPodsWithoutImages(t *testing.T) {
	w := newPrepullWorld(t, 3, map[string]string{api.PartitionAnnotation: "2"})
	w.setTargets("n1", "n2", "n3")
	w.images("n3", yes, target, "")
	w.expect("n3")
}

func TestWhichNodesAreAskedToPull(t *testing.T) {
	t.Run("those that the selector selects, Ready or not", func(t *testing.T) {
		w := newPrepullWorld(t, 4, map[string]string{api.NodeSelectorAnnotation: "name in (n2,n3)"})
		w.turn("n3", never)
		w.setTargets("n2", "n3")
		w.ds.Annotations[api.NodeSelectorAnnotation] = "name=n3"
		w.setTargets("n3")
	})
	t.Run("those without the target", func(t *testing.T) {
		w := newPrepullWorld(t, 3, nil)
		w.upgrade("n2", true)
		w.setTargets("n1", "n3")
	})
	t.Run("no further one while it is paused", func(t *testing.T) {
		w := newPrepullWorld(t, 3, nil)
		w.turn("n1", never)
		w.setTargets("n1", "n2", "n3")
		w.ds.Annotations[api.PausedAnnotation] = "true"
		w.remove("n2")
		w.addPod("n2", oldRevision, true)
		w.setTargets("n1", "n3")
		w.target = "newer"
		w.setTargets()
		w.ds.Annotations[api.PausedAnnotation] = "false"
		w.setTargets("n1", "n2", "n3")
	})
	t.Run("no further one while the circuit breaker is open", func(t *testing.T) {
		w := newPrepullWorld(t, 5, map[string]string{api.MaxUnavailableAnnotation: "2"})
		w.setTargets("n1", "n2", "n3", "n4", "n5")
		w.images("n1", yes, target, "")
		w.images("n2", yes, target, "")
		w.expect("n1", "n2")
		w.upgrade("n1", true)
		w.upgrade("n2", true)
		w.expect()
		w.turn("n1", never)
		w.turn("n2", never)
		w.remove("n3")
		w.addPod("n3", oldRevision, true)
		w.setTargets("n4", "n5")
	})
}

func TestThePrepullTimeStays(t *testing.T) {
	w := newPrepullWorld(t, 1, nil)
	since := func() time.Time {
		t.Helper()
		p := w.expect()
		w.carryOut(p)
		return p.Pulls[w.on("n1").UID]
	}
	first := since()
	w.pass(time.Minute)
	w.restart()
	if got := since(); !got.Equal(first) {
		t.Errorf("it moved from %v to %v", first, got)
	}
	w.target = "newer"
	second := since()
	if !second.Equal(w.now) {
		t.Errorf("for another revision it is %v, want %v", second, w.now)
	}
	w.pass(DefaultPrepullTimeout - time.Second)
	w.images("n1", yes, target, "") // too late
	if got := since(); !got.Equal(second) {
		t.Errorf("it moved from %v to %v", second, got)
	}
	w.pass(time.Second)
	w.expect("n1")
}

func TestAPrepullTimeInTheFutureIsReplaced(t *testing.T) {
	w := newPrepullWorld(t, 1, nil)
	w.pass(time.Hour)
	w.setTargets("n1")
	w.pass(-time.Hour) // whoever wrote it had a clock that was ahead
	p := w.expect()
	if got := p.Pulls[w.on("n1").UID]; !got.Equal(w.now) {
		t.Errorf("got %v, want %v", got, w.now)
	}
}

func TestANodeThatIsNotAskedYet(t *testing.T) {
	w := newPrepullWorld(t, 1, nil)
	p := w.expect()
	if got := state(t, &p, "n1"); got.State != Pending || got.Reason != "its node is yet to be told to pull its images" || !got.AwaitsImages {
		t.Errorf("n1 %+v", got)
	}
	w.pass(time.Hour)
	w.expect()
}

func TestPlansNameTheNodesThatWaitForImages(t *testing.T) {
	w := newPrepullWorld(t, 6, map[string]string{api.MaxUnavailableAnnotation: "1"})
	w.setTargets("n1", "n2", "n3", "n4", "n5", "n6")
	w.images("n2", no, target, api.ReasonQueued)
	w.images("n3", no, target, "PrepullUnauthorized")
	w.images("n5", no, target, api.ReasonTargetChanged)
	w.images("n6", no, target, "SomebodyElses")
	w.images("n4", no, oldRevision, "Unauthorized")
	p := w.expect()
	for node, want := range map[string]string{
		"n1": "its images are being pulled",
		"n2": "its images are being pulled",
		"n3": "its images could not be pulled yet (Unauthorized)",
		"n4": "its images are being pulled",
		"n5": "the images that were pulled are another revision's",
		"n6": "its images could not be pulled yet (SomebodyElses)",
	} {
		if got := state(t, &p, node); got.Reason != want || got.State != Pending {
			t.Errorf("%s %+v, want %s", node, got, want)
		}
	}
	if got, want := p.Summary(), "0 of 6 nodes updated, 6 pending (6 until their images are there)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if c := Conditions(&p)[1]; c.Status != yes || c.Reason != ReasonUpdating {
		t.Errorf("%+v, want a rollout that goes on by itself", c)
	}
}
