package controller_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

func TestModelAHeldPodHoldsUpNoOtherAndIsUpdatedInTheEnd(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := startModel(t, 5, 1, rolling)
		m.annotate(api.MaxHoldAnnotation, "1h")
		hold := func() { // by the clock of its node, which is ten years fast
			since := metav1.NewTime(time.Now().AddDate(10, 0, 0).Truncate(time.Second))
			m.touch("n1", func(pod *corev1.Pod) {
				metav1.SetMetaDataAnnotation(&pod.ObjectMeta, api.HoldAnnotation, api.PodHold{Since: since, Until: metav1.NewTime(since.Add(2 * time.Hour))}.Encode())
			})
		}
		hold()
		m.setImage("app:2")
		time.Sleep(10 * time.Minute)
		m.isProgressing(corev1.ConditionFalse, rollout.ReasonHeldByOwner, "4 of 5 nodes updated, 1 held by their owners (n1: held by its owner until ")
		m.reports("RolloutHeld", "at most until ")
		for range 4 { // it is extended, as a forger would
			time.Sleep(10 * time.Minute)
			hold()
		}
		if m.updated() != 4 {
			t.Error("the pod was replaced before the maximum was reached")
		}
		held := m.podOn("n1")
		time.Sleep(11 * time.Minute)
		m.holds("", on())
		if all := m.eventsOf(held, "HoldEnded"); len(all) != 1 || !strings.Contains(all[0], "controllerrevision app-2, though its owner holds it until ") {
			t.Errorf("got Events %q on the pod", all)
		}
	})
}
