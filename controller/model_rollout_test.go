package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

// gauge returns a metric of the DaemonSet, or of the StatefulSet of the same name, of one state where it has a series for each; -1 if there is none.
func (m *model) gauge(name, state string) float64 {
	m.t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range series.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == "edgehub_controller_"+name && labels["daemonset"]+labels["statefulset"] == daemonSetName && labels["state"] == state {
				return series.GetGauge().GetValue()
			}
		}
	}
	return -1
}

// needs fails the test unless so many owners are told that their pods need an upgrade.
func (m *model) needs(want int) {
	m.t.Helper()
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	got := 0
	for _, pods := range m.podsLocked() {
		if c := api.Condition(pods[0], api.NeedCondition); c != nil && c.Status == corev1.ConditionTrue {
			got++
		}
	}
	if got != want {
		m.t.Errorf("%d pods need an upgrade, want %d", got, want)
	}
}

// targets returns the targets of pods, by node.
func (m *model) targets() map[string]api.Target {
	m.t.Helper()
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	out := map[string]api.Target{}
	for node, pods := range m.podsLocked() {
		target, ok, err := api.TargetOf(pods[0])
		if err != nil {
			m.t.Fatal(err)
		}
		if ok {
			out[node] = target
		}
	}
	return out
}

// touch changes the pod on a node.
func (m *model) touch(node string, change func(*corev1.Pod)) {
	m.api.with(func() {
		pod := m.podsLocked()[node][0].DeepCopy()
		change(pod)
		m.api.putLocked("pods", pod)
	})
}

// gone returns the nodes whose pods the controller has deleted, in order.
func (m *model) gone() []string {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	return slices.Clone(m.deleted)
}

// reports fails the test unless there is one Event with this reason on the DaemonSet, with these words.
func (m *model) reports(reason string, words ...string) {
	m.t.Helper()
	all := m.told(reason)
	if len(all) != 1 {
		m.t.Fatalf("Events %s: %q, want one", reason, all)
	}
	for _, w := range words {
		if !strings.Contains(all[0], w) {
			m.t.Errorf("Event %s: %q, want it with %q", reason, all[0], w)
		}
	}
}

// isProgressing fails the test unless the condition is so.
func (m *model) isProgressing(status corev1.ConditionStatus, reason string, words ...string) {
	m.t.Helper()
	c := m.progressing()
	for _, w := range append(words, "") {
		if c.Status != status || c.Reason != reason || !strings.Contains(c.Message, w) {
			m.t.Errorf("Progressing is %s, %s: %s; want %s, %s with %q", c.Status, c.Reason, c.Message, status, reason, w)
		}
	}
}

func TestModelWhatARolloutWaitsForIsReported(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := startModel(t, 5, 1, rolling)
		m.annotate(api.PausedAnnotation, "true")
		m.setImage("app:2")
		time.Sleep(time.Minute)
		m.isProgressing(corev1.ConditionFalse, rollout.ReasonPaused, "5 held")
		m.reports("RolloutStarted", "0 of 5 nodes updated", "at most 1 of 5 Ready nodes")
		m.reports("RolloutHeld", api.PausedAnnotation)
		if got := m.gauge("rollout_nodes", string(rollout.HeldByPause)); got != 5 || len(m.gone()) > 0 {
			t.Errorf("the metric has %v nodes, and pods were deleted on %v", got, m.gone())
		}

		m.turn("n4", corev1.ConditionUnknown)
		m.annotate(api.PausedAnnotation, "")
		time.Sleep(time.Minute)
		m.reports("RolloutResumed", "0 of 5 nodes updated")
		m.isProgressing(corev1.ConditionFalse, rollout.ReasonWaiting, "4 of 5 nodes updated", "1 waiting until their node is Ready (n4)")
		m.reports("RolloutWaiting", "n4")

		m.turn("n4", corev1.ConditionTrue) // its pod has been Ready all the while: only the Node changes
		time.Sleep(time.Minute)
		m.holds("", on())
		m.reports("RolloutComplete", "5 of 5 nodes updated, done in")
	})
}

func TestModelAHaltedRolloutStaysSoUntilAnAdminContinuesIt(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := startModel(t, 6, 2, rolling)
		m.setImage("broken:1")
		time.Sleep(time.Minute)
		lost := m.gone()
		m.annotate(api.PausedAnnotation, "true") // they do not go at the very same moment
		time.Sleep(time.Second)
		for _, node := range lost {
			m.turn(node, corev1.ConditionUnknown)
		}
		time.Sleep(time.Minute)
		m.annotate(api.PausedAnnotation, "")
		time.Sleep(time.Minute)
		m.start() // another process knows
		time.Sleep(time.Hour)
		m.isProgressing(corev1.ConditionFalse, rollout.ReasonHalted)
		halted := m.condition(api.HaltedCondition)
		for _, words := range append(lost, "2 of the 2 nodes", api.ContinueAnnotation+" is set to broken-1") {
			if halted.Status != corev1.ConditionTrue || !strings.Contains(halted.Message, words) {
				t.Errorf("Halted is %s: %s; want %q in it", halted.Status, halted.Message, words)
			}
			m.reports("RolloutHalted", words)
		}
		if len(m.gone()) != 2 {
			t.Errorf("pods were deleted on %v, though the nodes %v were lost", m.gone(), lost)
		}
		m.annotate(api.ContinueAnnotation, "broken-1")
		time.Sleep(time.Minute)
		m.reports("RolloutResumed", "controllerrevision broken-1")
		if len(m.gone()) != 4 || len(m.violations()) > 0 {
			t.Errorf("pods were deleted on %v: %q", m.gone(), m.violations())
		}
	})
}

// Whatever cannot be carried out is one Event and a condition. No pod is touched until it is corrected.
func TestModelWhatIsInvalidIsReportedAndNothingIsDeleted(t *testing.T) {
	annotation := func(key, value string) func(*appsv1.DaemonSet) {
		return func(ds *appsv1.DaemonSet) { ds.Annotations[key] = value }
	}
	for name, tt := range map[string]struct {
		strategy string
		spoil    func(*appsv1.DaemonSet)
		words    string
	}{
		"a maximum":             {rolling, annotation(api.MaxUnavailableAnnotation, "101%"), `max-unavailable is "101%"`},
		"a timeout":             {rolling, annotation(api.PrepullTimeoutAnnotation, "0"), `image-prepull-timeout is "0"`},
		"a hold":                {rolling, annotation(api.MaxHoldAnnotation, "a day"), `max-hold is "a day": write a duration`},
		"a strategy":            {rolling, annotation(strategyKey, "OTAA"), `"OTAA"`},
		"images first with OTA": {"OTA", annotation(api.PrepullAnnotation, "yes"), `image-prepull is "yes": write true or false`},
		"an update strategy of Kubernetes": {rolling, func(ds *appsv1.DaemonSet) {
			ds.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
		}, "to OnDelete"},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T) {
				m := newModel(t, 3, 1, tt.strategy)
				right := m.daemonSet()
				m.change(tt.spoil)
				m.start()
				begin := time.Now()
				m.setImage("app:2")
				time.Sleep(time.Hour)
				m.reports("InvalidUpdateStrategy", tt.words)
				if c := m.condition(api.InvalidCondition); c.Status != corev1.ConditionTrue {
					t.Errorf("Invalid is %q: %s", c.Status, c.Message)
				}
				m.needs(0)
				if got := len(m.targets()) + m.api.count(begin, "DELETE", "pods"); got > 0 {
					t.Errorf("%d pods were touched", got)
				}
				m.fewer(3, begin, "PATCH", "daemonsets/status")
				m.change(func(ds *appsv1.DaemonSet) {
					ds.Annotations, ds.Spec.UpdateStrategy = right.Annotations, right.Spec.UpdateStrategy
				})
				time.Sleep(time.Minute)
				if c := m.condition(api.InvalidCondition); c.Status == corev1.ConditionTrue {
					t.Errorf("corrected, Invalid is still True: %s", c.Message)
				}
				if tt.strategy == rolling {
					m.holds("", on())
				} else {
					m.needs(3)
				}
			})
		})
	}
}

func TestModelFromOTAToARolloutAndAway(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := startModel(t, 4, 4, "OTA")
		m.setImage("app:2")
		m.change(func(ds *appsv1.DaemonSet) { ds.Spec.MinReadySeconds = 7 }) // which is no part of the revision
		time.Sleep(time.Minute)
		m.needs(4)
		m.touch("n2", func(pod *corev1.Pod) { delete(pod.Annotations, api.TargetAnnotation) })
		m.annotate(strategyKey, "OTAA") // a typo undoes nothing
		time.Sleep(time.Minute)
		m.needs(4)
		m.annotate(strategyKey, "OTA")
		time.Sleep(time.Minute)
		for node, target := range m.targets() {
			if target.Containers[0].Image != "app:2" || target.MinReadySeconds != 7 {
				t.Errorf("the target on %s is %+v", node, target)
			}
		}
		if c := m.condition(api.CompleteCondition); len(m.targets()) != 4 || c.Status != corev1.ConditionFalse || c.Reason != rollout.ReasonWaitingForOwners || m.progressing().Type != "" {
			t.Errorf("with OTA, %d pods have a target, Complete is %+v and Progressing %+v", len(m.targets()), c, m.progressing())
		}
		if pods, nodes := m.gauge("daemonset_pods", "needs_upgrade"), m.gauge("rollout_nodes", "pending"); pods != 4 || nodes != -1 {
			t.Errorf("metrics: %v pods need an upgrade, %v nodes are pending; want 4, and no metric of a rollout", pods, nodes)
		}
		if len(m.gone()) > 0 {
			t.Errorf("with OTA, pods were deleted on %v", m.gone())
		}

		m.annotate(strategyKey, "auto")
		time.Sleep(time.Minute)
		m.holds("", on())
		m.needs(0)
		if pods, nodes := m.gauge("daemonset_pods", "needs_upgrade"), m.gauge("rollout_nodes", "updated"); pods != -1 || nodes != 4 {
			t.Errorf("metrics: %v pods need an upgrade, %v nodes are updated; want no metric of OTA, and 4", pods, nodes)
		}

		m.stop() // nobody is there when it opts out
		m.annotate(strategyKey, "")
		m.start()
		time.Sleep(time.Minute)
		if left := m.daemonSet(); len(left.Status.Conditions) > 0 || left.Annotations[api.ReportAnnotation] != "" {
			t.Errorf("conditions are left, or a report: %+v, %v", left.Status.Conditions, left.Annotations)
		}
	})
}

func TestModelAPodIsKeptUntilItsImagesAreThere(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newModel(t, 4, 2, rolling)
		m.annotate(api.PrepullAnnotation, "true")
		m.annotate(api.PrepullTimeoutAnnotation, "12h")
		m.start()
		m.api.with(func() { m.api.faults.late = map[string]time.Duration{"pods": 30 * time.Second} })
		begin := time.Now()
		m.setImage("app:2")
		time.Sleep(10 * time.Second)
		m.annotate(api.MaxUnavailableAnnotation, "1") // a step, before the watch shows that the pods have targets
		time.Sleep(time.Minute)
		first := m.targets()
		pulling := func(when string, want int, image string) {
			t.Helper()
			time.Sleep(time.Minute)
			n := 0
			for node, target := range m.targets() {
				if target.Prepull == nil || target.Containers[0].Image != image {
					continue
				}
				if n++; image == "app:2" && !target.Prepull.Equal(first[node].Prepull) {
					t.Errorf("%s: %s pulls since %v, before since %v", when, node, target.Prepull, first[node].Prepull)
				}
			}
			if n != want {
				t.Errorf("%s: %d nodes are told to pull %s, want %d", when, n, image, want)
			}
		}
		pulling("at first", 4, "app:2")
		m.api.with(func() { m.api.faults.late = nil })
		m.start()
		pulling("for another controller", 4, "app:2")
		m.fewer(4, begin, "PATCH", "pods/status")
		m.needs(0)
		m.isProgressing(corev1.ConditionTrue, rollout.ReasonUpdating, "0 of 4 nodes updated, 4 pending (4 until their images are there)")
		m.reports("RolloutStarted", "each keeps its pod until its images are there, for 12h0m0s at most")
		if got := m.gauge("rollout_nodes_awaiting_images", ""); got != 4 {
			t.Errorf("the metric says that %v nodes wait for images", got)
		}

		imagesAreThere := func(nodes ...string) {
			for _, node := range nodes {
				m.touch(node, func(pod *corev1.Pod) {
					pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
						Type: api.ImageCondition, Status: corev1.ConditionTrue, Message: api.Message(m.targetLocked()),
					})
				})
			}
		}
		imagesAreThere("n4")
		pulling("when one node has them", 3, "app:2")
		if !slices.Equal(m.gone(), []string{"n4"}) {
			t.Errorf("the pods on %v were deleted, want the one whose images are there", m.gone())
		}
		m.annotate(strategyKey, "OTA")
		pulling("with OTA", 3, "app:2")
		m.needs(3)
		m.annotate(strategyKey, rolling)
		pulling("with a rollout again", 3, "app:2")
		m.needs(0)
		m.setImage("app:3")
		pulling("for the next revision", 4, "app:3")
		if n := m.api.watches(); n != 2 {
			t.Errorf("%d watches of pods and revisions, want one of each", n)
		}
		m.annotate(strategyKey, "")
		pulling("without a strategy", 0, "app:3")
		if n := m.api.watches(); n != 0 {
			t.Errorf("%d watches of pods and revisions, though nothing is asked for", n)
		}
		if all := m.told("UpgradeMarksRemoved"); len(all) == 0 || !strings.Contains(all[len(all)-1], "4 pods no longer have their nodes pull images") {
			t.Errorf("the Events are %q", all)
		}
		m.annotate(strategyKey, rolling)
		pulling("at last", 4, "app:3")
		imagesAreThere("n1", "n2", "n3", "n4")
		time.Sleep(time.Minute)
		m.holds("", on())
	})
}

// Pods that cannot be marked hold up no other. Sent one after the other, each is tried: a refusal ends no round.
func TestModelAPodThatMayNotBeMarkedHoldsUpNoOther(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newModel(t, 4, 1, "OTA")
		m.options.Patches = 1
		m.start()
		time.Sleep(time.Minute)
		m.refuse("PATCH pods/status", refusals[0], "n1", "n2", "n3")
		begin := time.Now()
		m.setImage("app:2")
		time.Sleep(time.Minute)
		m.needs(1)
		if all := m.told("MarkingFailed"); len(all) == 0 || !strings.Contains(all[0], "3 of 4 not done") || !strings.Contains(all[0], "not today") {
			t.Errorf("the Events are %q", all)
		}
		m.fewer(1+3*doubling(ofPod, time.Minute), begin, "PATCH", "pods/status")
		m.heal()
		time.Sleep(6 * time.Minute)
		m.needs(4)
	})
}

// At most three requests of ours for each pod, even with few of them.
func TestModelFewRequestsForEachPod(t *testing.T) {
	simulate(t, func(t *testing.T) {
		const nodes = 10
		m := startModel(t, nodes, 2, rolling)
		time.Sleep(time.Minute)
		begin := time.Now()
		m.rollsOut("app:2")
		if got := m.api.count(begin, "", ""); got > 3*nodes {
			_, what := m.api.busiest()
			t.Errorf("%d requests for %d pods: %s", got, nodes, what)
		}
	})
}

func TestModelARolloutGoesOnAfterAnOutage(t *testing.T) {
	for _, relist := range []bool{false, true} {
		t.Run(fmt.Sprintf("watches have to list again: %t", relist), func(t *testing.T) {
			simulate(t, func(t *testing.T) {
				m := startModel(t, 6, 1, rolling)
				time.Sleep(time.Minute)
				m.setImage("app:2")
				time.Sleep(5 * time.Second)
				m.api.with(func() { m.api.faults.away = true })
				m.api.cut(relist)
				time.Sleep(3 * time.Minute)
				if n := m.updated(); n == 0 || n == 6 {
					t.Errorf("the outage was to come when some pods are replaced, and it came after %d", n)
				}
				m.api.with(func() { m.api.faults.away = false })
				time.Sleep(5 * time.Minute)
				m.holds("", on())
				if most, what := m.api.busiest(); most > 200 {
					t.Errorf("%d requests in a minute: %s", most, what)
				}
			})
		})
	}
}
