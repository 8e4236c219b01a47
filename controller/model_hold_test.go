package controller_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// heldPod is when a pod must not be deleted.
type heldPod struct{ since, until time.Time }

// clocks are by how much a node's clock may be off.
var clocks = []time.Duration{0, 10 * 365 * 24 * time.Hour, -10 * 365 * 24 * time.Hour}

// permitHolds sets the maximum of this DaemonSet, and of those that are made after it.
func (m *model) permitHolds(most time.Duration) {
	m.maxHold = most
	m.change(func(ds *appsv1.DaemonSet) { ds.Annotations[upgrade.MaxHoldAnnotation] = most.String() })
}

// hold does what the hub on a node does, whose clock is off, for a pod that was not held yet.
func (m *model) hold(node string, length, off time.Duration) {
	m.api.with(func() {
		for _, pod := range m.podsLocked()[node] {
			if _, was := m.held[pod.UID]; was || pod.Spec.NodeName == "" || !pod.DeletionTimestamp.IsZero() {
				continue
			}
			m.held[pod.UID] = heldPod{time.Now(), time.Now().Add(min(length, m.maxHold))}
			m.annotateHoldLocked(pod, length, off)
		}
	})
}

func (m *model) annotateHoldLocked(pod *corev1.Pod, length, off time.Duration) {
	pod = pod.DeepCopy()
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	since := metav1.NewTime(time.Now().Add(off).Truncate(time.Second))
	pod.Annotations[upgrade.HoldAnnotation] = upgrade.Hold{Since: since, Until: metav1.NewTime(since.Add(length))}.Encode()
	m.api.putLocked("pods", pod)
}

// updated returns how many nodes have a pod of the target revision.
func (m *model) updated() int {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	n := 0
	for _, pods := range m.podsLocked() {
		if len(pods) == 1 && pods[0].Labels[appsv1.ControllerRevisionHashLabelKey] == m.targetLocked() {
			n++
		}
	}
	return n
}

func TestModelAHeldPodHoldsUpNoOtherAndIsUpdatedInTheEnd(t *testing.T) {
	for _, off := range clocks {
		t.Run(fmt.Sprintf("a clock that is off by %v", off), func(t *testing.T) {
			simulate(t, func(t *testing.T) {
				m := startModel(t, 5, 1, rolling)
				m.permitHolds(time.Hour)
				m.hold("n1", 2*time.Hour, off)
				m.setImage("app:2")
				time.Sleep(10 * time.Minute)
				c := m.progressing()
				if m.updated() != 4 || c.Status != corev1.ConditionFalse || c.Reason != rollout.ReasonHeldByOwner ||
					!strings.Contains(c.Message, "4 of 5 nodes updated, 1 held by their owners (n1: held by its owner until ") {
					t.Errorf("%d updated, and %s: %s", m.updated(), c.Reason, c.Message)
				}
				uid := string(m.daemonSet().UID)
				if all := m.eventsOf(uid, "RolloutHeld"); len(all) != 1 || !strings.Contains(all[0], "at most until ") {
					t.Errorf("got Events %q", all)
				}
				for range 4 { // it is extended, as a forger would
					time.Sleep(10 * time.Minute)
					m.api.with(func() { m.annotateHoldLocked(m.podsLocked()["n1"][0], 2*time.Hour, off) })
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
		})
	}
}

func (m *model) daemonSet() *appsv1.DaemonSet {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	return m.daemonSetLocked()
}

// podOn returns the UID of the pod on a node.
func (m *model) podOn(node string) string {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	return string(m.podsLocked()[node][0].UID)
}
