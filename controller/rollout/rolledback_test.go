package rollout

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// Whether it serves or not, whether its node is Ready or not: the pod of an owner who went
// back stays until there is another target.
func TestAPodThatItsOwnerRolledBackStays(t *testing.T) {
	w := newPrepullWorld(t, 4, map[string]string{api.PrepullAnnotation: "false"})
	w.rolledBack = []string{"n1", "n2", "n3"}
	w.ready(w.on("n2").UID, false)
	w.turn("n3", corev1.ConditionUnknown)
	p := w.expect("n4")
	for _, node := range w.rolledBack {
		if got := state(t, &p, node); got.State != RolledBack {
			t.Errorf("node %s is %s", node, got.State)
		}
	}
	if got := state(t, &p, "n2"); !strings.Contains(got.Reason, "not Ready") {
		t.Errorf("the pod that is not Ready has reason %q", got.Reason)
	}
	if p.Unavailable != 2 {
		t.Errorf("%d nodes are unavailable, want that whose pod is not Ready and that whose pod is deleted", p.Unavailable)
	}

	w.ready(w.on("n2").UID, true)
	w.turn("n3", corev1.ConditionTrue)
	w.upgrade("n4", true)
	w.pass(time.Minute)
	p = w.expect()
	complete := Conditions(&p)[0]
	if p.Complete() || complete.Status != corev1.ConditionFalse || complete.Reason != ReasonRolledBack ||
		!strings.Contains(complete.Message, "1 of 4 nodes updated, 3 rolled back by their owners (n1, n2, n3)") {
		t.Errorf("got %+v", complete)
	}

	w.rolledBack = nil // the target is another, or the owners upgrade
	w.pass(time.Minute)
	w.expect("n1", "n3", "n2")
}

func TestAPodThatRestartsCountsAsUnavailable(t *testing.T) {
	w := newWorld(t, 3)
	w.rolledBack = []string{"n1"}
	w.restarting = map[string]time.Time{"n1": w.now.Add(time.Minute)}
	p := w.expect()
	if got := state(t, &p, "n1"); got.State != RolledBack || !strings.Contains(got.Reason, "restart") || p.Unavailable != 1 {
		t.Errorf("node n1 is %s because of %q, and %d are unavailable", got.State, got.Reason, p.Unavailable)
	}
	if !p.Wake.Equal(w.now.Add(time.Minute)) {
		t.Errorf("the next look is at %v, want when the restart is over", p.Wake)
	}
	w.restarting = nil
	w.expect("n2")
}

func TestNodesOfOwnersWhoWentBackPullNothing(t *testing.T) {
	w := newPrepullWorld(t, 2, nil)
	w.rolledBack = []string{"n1"}
	w.setTargets("n2")
}

// The owner's pod is not replaced while it is yet to get the earlier revision.
func TestAPodThatIsToBeRolledBackStays(t *testing.T) {
	w := newWorld(t, 2)
	w.rolledBack = []string{"n1", "n2"}
	w.upgrade("n2", true)
	p := w.expect()
	if n1, n2 := state(t, &p, "n1"), state(t, &p, "n2"); n1.State != RolledBack || n2.State != Updated {
		t.Errorf("got %s, and %s for the pod that is still of the target", n1.State, n2.State)
	}
}

func TestRolledBackPodsThatUseUpTheMaximumAreTheReason(t *testing.T) {
	w := newWorld(t, 3)
	w.rolledBack = []string{"n1"}
	w.ready(w.on("n1").UID, false)
	p := w.expect()
	if is, reason, message := progress(&p); is || reason != ReasonRolledBack || !strings.Contains(message, "2 pending, 1 rolled back by their owners") {
		t.Errorf("got %t, %s, %s", is, reason, message)
	}
}
