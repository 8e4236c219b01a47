package progress

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// imagesFirst has a node that is updated, and three that have had their target for two minutes
// ago to pull: one does, one cannot, one has.
func imagesFirst(annotations map[string]string) *world {
	w := newWorld(advanced, map[string]string{upgrade.PrepullAnnotation: "true", rollout.MaxUnavailableAnnotation: "1"})
	for key, value := range annotations {
		w.daemonSet.Annotations[key] = value
	}
	w.fleet("a", 1, newRevision).fleet("b", 3, oldRevision)
	for _, pod := range w.Pods[1:] {
		target := upgrade.Target{Revision: newRevision, Containers: []upgrade.Image{{Name: "web", Image: "web:v2"}},
			Prepull: &metav1.Time{Time: start.Add(-2 * time.Minute)}}
		pod.Annotations = map[string]string{upgrade.TargetAnnotation: target.Encode()}
	}
	w.images(2, corev1.ConditionFalse, "PrepullRegistryUnreachable")
	w.images(3, corev1.ConditionTrue, upgrade.ReasonReady)
	return w
}

func (w *world) images(pod int, status corev1.ConditionStatus, reason string) {
	w.Pods[pod].Status.Conditions = append(w.Pods[pod].Status.Conditions,
		corev1.PodCondition{Type: upgrade.ImageCondition, Status: status, Message: upgrade.Message(newRevision), Reason: reason})
}

func TestStatusTellsWhoWaitsForImages(t *testing.T) {
	r := imagesFirst(nil).evaluate(t)
	want := strings.TrimPrefix(`
daemonset.apps/web in shop: AdvancedRollingUpdate to revision 7c9b
updated          1  of 4
unavailable      0
pending          3  2 until their images are there; 0 of at most 1 unavailable (1 of 4 Ready nodes)
not ready        0
held             0
updating: it goes on by itself
`, "\n")
	if got := r.text(0); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for i, want := range []string{"", "its images are being pulled", "its images could not be pulled yet (RegistryUnreachable)", "it is next"} {
		if n := r.Nodes[i]; n.Reason != want || n.AwaitsImages != (i == 1 || i == 2) {
			t.Errorf("got %+v, want the reason %q", n, want)
		}
	}
}

func TestStatusWhenNothingElseIsWaitedFor(t *testing.T) {
	w := imagesFirst(nil)
	w.Pods[3].Labels[revisionLabel] = newRevision
	r := w.evaluate(t)
	text := r.text(0)
	for _, want := range []string{"pending          2  until their images are there\n", "the next pods follow when their images are there, or after 30m0s without them"} {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %q in it", text, want)
		}
	}
	w = imagesFirst(map[string]string{rollout.PrepullTimeoutAnnotation: "2m"})
	if r := w.evaluate(t); r.Nodes[1].AwaitsImages {
		t.Errorf("got %+v, though it has waited for two minutes", r.Nodes[1])
	}
}

func TestAWrongPrepullIsWrongWithEitherStrategy(t *testing.T) {
	for _, strategy := range []string{advanced, daemonset.OTA.String()} {
		r := newWorld(strategy, map[string]string{upgrade.PrepullAnnotation: "yes"}).fleet("a", 1, oldRevision).evaluate(t)
		if r.State != Invalid || !strings.Contains(r.Advice, `image-prepull is "yes": write true or false`) {
			t.Errorf("%s: got %s: %s", strategy, r.State, r.Advice)
		}
	}
}
