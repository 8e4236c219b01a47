package expectations

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/backoff"
)

var now = time.Date(2026, 1, 1, 11, 0, 0, 0, time.UTC)

func webPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", UID: "uid"}}
}

func TestATerminatingPodIsNoLongerExpected(t *testing.T) {
	d, pod := NewDeletions(), webPod()
	d.Expect(pod)
	d.Answered(pod, Unknown, false, errors.New("no answer"), now)
	ended := pod.DeepCopy()
	ended.DeletionTimestamp = &metav1.Time{Time: now}
	if again := d.Observed([]*corev1.Pod{ended}, nil, now.Add(time.Hour)); len(again) != 0 || d.Has(pod.UID) {
		t.Errorf("sent again %v, expected %t", again, d.Has(pod.UID))
	}
}

// One that is to be kept by now counts as not deleted, unless it is known that it was.
func TestAPodThatIsToBeKeptIsNoLongerExpected(t *testing.T) {
	keep := func(*corev1.Pod) bool { return true }
	for outcome, expected := range map[Outcome]bool{Unknown: false, Deleting: true} {
		d, pod := NewDeletions(), webPod()
		d.Expect(pod)
		d.Answered(pod, outcome, false, errors.New("no answer"), now)
		if again := d.Observed([]*corev1.Pod{pod}, keep, now.Add(time.Hour)); len(again) != 0 || d.Has(pod.UID) != expected {
			t.Errorf("%v: sent again %v, expected %t", outcome, again, d.Has(pod.UID))
		}
	}
}

// Whatever happens meanwhile, each failure doubles the wait, and one success ends it.
func TestAPodThatIsNotDeletedIsTriedLaterAndLater(t *testing.T) {
	d, pod, at := NewDeletions(), webPod(), now
	for want := backoff.MinDelay; want < backoff.MaxDelay; want *= 2 {
		d.Answered(pod, Kept, false, errors.New("no"), at)
		d.Observed([]*corev1.Pod{pod}, nil, at)
		if got := d.Refusal(pod.UID).Until.Sub(at); got != want {
			t.Fatalf("it is tried again after %v, want %v", got, want)
		}
		if next := d.Next(at); !next.Equal(at.Add(want)) {
			t.Fatalf("the next look is at %v, want %v", next, at.Add(want))
		}
		at = at.Add(want)
	}
	d.Answered(pod, Kept, false, errors.New("no"), at)
	if got := d.Refusal(pod.UID).Until.Sub(at); got != backoff.MaxDelay {
		t.Errorf("in the end it is tried again after %v, want %v", got, backoff.MaxDelay)
	}
	if d.RefusalsInARow() < 3 {
		t.Errorf("%d refusals in a row", d.RefusalsInARow())
	}
	d.Answered(pod, Deleting, false, nil, at)
	if d.Refusal(pod.UID) != nil || !d.Next(at).IsZero() || d.RefusalsInARow() != 0 {
		t.Error("something is left of them when it is deleted")
	}
}

// A pod that serves nobody changes often, so that its first conflicts are bad luck. One
// that ends in nothing but conflicts is refused.
func TestRepeatedConflictsBecomeARefusal(t *testing.T) {
	d, pod := NewDeletions(), webPod()
	for i := range toleratedConflicts + 1 {
		d.Answered(pod, Kept, true, errors.New("conflict"), now)
		if named, want := d.Refusal(pod.UID).Message != "", i == toleratedConflicts; named != want {
			t.Errorf("after %d conflicts it is named: %t", i+1, named)
		}
	}
}

func TestQuotedErrorsAreTruncatedAndPrintable(t *testing.T) {
	got := QuoteError(errors.New("no\x1b[31m\n" + strings.Repeat("ü", 1000)))
	if !utf8.ValidString(got) || len(got) > 2*maxQuoted || strings.ContainsAny(got, "\x1b\n") || !strings.HasPrefix(got, `"no\x1b[31m\n`) {
		t.Errorf("got %s", got)
	}
}
