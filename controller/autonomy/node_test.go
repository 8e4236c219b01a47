package autonomy

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

func TestTheConditionOfANode(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}
	step := func(annotations map[string]string, failed error, want string) {
		t.Helper()
		n.Annotations = annotations
		s, invalid := fleet.SettingOf(n)
		c := ConditionFor(n, s, invalid, failed)
		if c == nil {
			if want != "" {
				t.Errorf("no condition, want %s", want)
			}
			return
		}
		patch, changed, err := PatchFor(n, c, metav1.Now())
		if patch == nil || !changed || err != nil {
			t.Errorf("with %v: %s, %v, %v", annotations, patch, changed, err)
		}
		if got := string(c.Status) + " " + c.Reason + ": " + c.Message; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		n.Status.Conditions = []corev1.NodeCondition{*c}
		if again, _, _ := PatchFor(n, ConditionFor(n, s, invalid, failed), metav1.Now()); again != nil {
			t.Errorf("it is patched again: %s", again)
		}
	}
	away := func(taints ...corev1.Taint) { n.Spec.Taints = taints }
	step(nil, nil, "")
	step(map[string]string{api.AutonomyAnnotation: "24h"}, nil, "True AutonomyApplied: pods stay while this node is away, for up to 24h0m0s")
	step(map[string]string{api.AutonomyAnnotation: "24h"}, errors.New("pod a/b: no"), "False AutonomyIncomplete: pod a/b: no; it is tried again")
	step(map[string]string{api.AutonomyAnnotation: "0"}, nil, "True AutonomyApplied: pods stay while this node is away, however long that is")
	step(map[string]string{api.AutonomyAnnotation: "7d"}, nil, `True InvalidAutonomy: annotation node.openyurt.io/autonomy-duration is "7d": want a duration like 24h or 1h30m, or 0 for any outage; pods stay as they are`)
	away(corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
	step(map[string]string{api.AutonomyAnnotation: "0", api.ReleasedAnnotation: "x"}, nil, "False Released: the node was given up: its pods are evicted now, until it is back")
	away()
	step(nil, nil, "False AutonomyRemoved: pods are evicted when this node is away for longer than they tolerate")
}

func TestTheAnnotationOfAReleaseGoesWhenTheNodeIsBack(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "7", Annotations: map[string]string{api.ReleasedAnnotation: "x"}}}
	patch, changed, err := PatchFor(n, nil, metav1.Now())
	if want := `{"metadata":{"annotations":{"apps.openyurt.io/autonomy-released":null},"resourceVersion":"7","uid":"u"}}`; string(patch) != want || changed || err != nil {
		t.Errorf("%s, %v, %v", patch, changed, err)
	}
	for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: effect}}
		if patch, _, _ := PatchFor(n, nil, metav1.Now()); patch != nil {
			t.Errorf("with the taint %s: %s", effect, patch)
		}
	}
}

func TestSinceWhenANodeIsAway(t *testing.T) {
	at := func(s int64) *metav1.Time { return &metav1.Time{Time: time.Unix(s, 0)} }
	n := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule, TimeAdded: at(1)},
		{Key: "other", Effect: corev1.TaintEffectNoExecute, TimeAdded: at(2)},
	}}}
	if since, ok := AwaySince(n); ok {
		t.Errorf("without a taint that evicts: since %v", since)
	}
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: at(9)},
		corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute, TimeAdded: at(8)})
	if since, ok := AwaySince(n); !ok || since != at(8).Time {
		t.Errorf("since %v, %v", since, ok)
	}
}
