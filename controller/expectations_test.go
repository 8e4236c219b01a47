package controller

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/podtest"
)

func TestATerminatingPodIsNoLongerExpected(t *testing.T) {
	d, pod := newExpectations(), podtest.PodAt("old")
	d.expect(pod)
	d.answered(pod, unknown, false, errors.New("no answer"), podtest.Now)
	if again := d.observed([]*corev1.Pod{podtest.Terminating(podtest.PodAt("old"))}, podtest.Now.Add(time.Hour)); len(again) != 0 || d.has(pod.UID) {
		t.Errorf("sent again %v, expected %t", again, d.has(pod.UID))
	}
}

// Whatever happens meanwhile, each failure doubles the wait, and one success ends it.
func TestAPodThatIsNotDeletedIsTriedLaterAndLater(t *testing.T) {
	d, pod, at := newExpectations(), podtest.PodAt("old"), podtest.Now
	for want := minPodBackoff; want < maxPodBackoff; want *= 2 {
		d.answered(pod, kept, false, errors.New("no"), at)
		d.observed([]*corev1.Pod{pod}, at)
		if got := d.refusal(pod.UID).Until.Sub(at); got != want {
			t.Fatalf("it is tried again after %v, want %v", got, want)
		}
		if next := d.next(at); !next.Equal(at.Add(want)) {
			t.Fatalf("the next look is at %v, want %v", next, at.Add(want))
		}
		at = at.Add(want)
	}
	d.answered(pod, kept, false, errors.New("no"), at)
	if got := d.refusal(pod.UID).Until.Sub(at); got != maxPodBackoff {
		t.Errorf("in the end it is tried again after %v, want %v", got, maxPodBackoff)
	}
	if d.refusalsInARow() < 3 {
		t.Errorf("%d refusals in a row", d.refusalsInARow())
	}
	d.answered(pod, deleting, false, nil, at)
	if d.refusal(pod.UID) != nil || !d.next(at).IsZero() || d.refusalsInARow() != 0 {
		t.Error("something is left of them when it is deleted")
	}
}

// A pod that serves nobody changes often, so that its first conflicts are bad luck. One
// that ends in nothing but conflicts is refused.
func TestAConflictThatDoesNotEndIsNamed(t *testing.T) {
	d, pod := newExpectations(), podtest.PodAt("old")
	for i := range toleratedConflicts + 1 {
		d.answered(pod, kept, true, errors.New("conflict"), podtest.Now)
		if named, want := d.refusal(pod.UID).Words != "", i == toleratedConflicts; named != want {
			t.Errorf("after %d conflicts it is named: %t", i+1, named)
		}
	}
}
