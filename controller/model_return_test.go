package controller_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

// upgradesOffline has the hub of a node show another image to kubelet, which the cloud does not know.
func (m *model) upgradesOffline(node, image string) {
	m.api.with(func() {
		pod := m.podsLocked()[node][0]
		m.shown[pod.UID] = image
		m.startLocked(pod)
	})
}

// hubReports has the hub of a node report an upgrade: that it is on probation, that the pod runs the image, or that the node went back.
func (m *model) hubReports(node, image string, status corev1.ConditionStatus) {
	m.touch(node, func(pod *corev1.Pod) {
		delete(pod.Annotations, api.UpgradedOfflineAnnotation)
		c := corev1.PodCondition{Type: api.UpgradedOfflineCondition, Status: status, Reason: api.ReasonInProbation, Message: api.Message(hashOf(image))}
		switch status {
		case corev1.ConditionTrue:
			c.Reason = api.ReasonPassed
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, api.UpgradedOfflineAnnotation, api.OfflineUpgrade{
				Revision: hashOf(image), From: pod.Labels[appsv1.ControllerRevisionHashLabelKey], Images: []api.TargetImage{{Name: "app", Image: image}}, Since: metav1.Now(),
			}.Encode())
		case corev1.ConditionFalse:
			c.Reason, c.Message = api.ReasonCrashed, c.Message+": it crashes"
			delete(m.shown, pod.UID)
		}
		pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(have corev1.PodCondition) bool { return have.Type == c.Type })
		pod.Status.Conditions = append(pod.Status.Conditions, c)
	})
}

// What becomes of a pod that its node has upgraded while the cloud was away.
func TestModelWhatBecomesOfAPodThatWasUpgradedOffline(t *testing.T) {
	for name, tt := range map[string]struct {
		meanwhile func(*model)           // while the node is away
		runs      string                 // what it reports in place of app:2
		image     string                 // of the pod then; "": the pod is gone
		need      corev1.ConditionStatus // PodNeedUpgrade
		reason    string                 // of PodOfflineUpgradeReconciled; "": none
		words     string
		heal      func(*model) // it follows then
	}{
		"the target is the same": {image: "app:2", need: corev1.ConditionFalse},
		"the admin has moved on": {meanwhile: func(m *model) { m.setImage("app:3") }, image: "app:2", need: corev1.ConditionTrue},
		"the admin rolled back":  {meanwhile: func(m *model) { m.setImage("app:1") }, image: "app:2", need: corev1.ConditionTrue},
		"the revision is gone": {
			meanwhile: func(m *model) {
				m.setImage("app:3")
				time.Sleep(time.Second)
				m.api.with(func() {
					m.api.removeLocked("controllerrevisions", m.api.objects["controllerrevisions"][namespace+"/"+daemonSetName+"-"+hashOf("app:2")])
				})
			},
			image: "app:1", need: corev1.ConditionTrue, reason: api.ReasonRevisionUnknown, words: "not in the history",
			heal: func(m *model) { m.setImage("app:2") },
		},
		"admission refuses it": {
			meanwhile: func(m *model) { m.admitPatches(refusesImages) },
			image:     "app:1", need: corev1.ConditionTrue, reason: api.ReasonPatchRefused, words: violates,
			heal: func(m *model) { m.admitPatches(func(*corev1.Pod) error { return nil }) },
		},
		"admission rewrites it": {
			meanwhile: func(m *model) {
				m.admitPatches(func(pod *corev1.Pod) error { pod.Spec.Containers[0].Image = "site/app:2"; return nil })
			},
			image: "app:1", need: corev1.ConditionTrue, reason: api.ReasonImagesDiffer, words: "from app:2 to site/app:2",
			heal: func(m *model) { m.admitPatches(func(*corev1.Pod) error { return nil }) },
		},
		"a webhook is down": {
			meanwhile: func(m *model) {
				m.admitPatches(func(*corev1.Pod) error { return errWebhookDown })
			},
			image: "app:1", need: corev1.ConditionTrue, reason: api.ReasonPatchRefused, words: "failed calling webhook",
			heal: func(m *model) { m.admitPatches(func(*corev1.Pod) error { return nil }) },
		},
		"the controller may not patch": {
			meanwhile: func(m *model) { m.refuse("PATCH pods", refusals[0], "n1") },
			image:     "app:1", need: corev1.ConditionTrue, reason: api.ReasonPatchRefused, words: "not today",
			heal: func(m *model) { m.heal() },
		},
		"it is not permitted any more": {
			meanwhile: func(m *model) { m.annotate(api.OfflineUpgradeAnnotation, "Queue") },
			image:     "app:1", need: corev1.ConditionTrue, reason: api.ReasonNotAllowed, words: "does not permit",
			heal: func(m *model) { m.annotate(api.OfflineUpgradeAnnotation, "InPlace") },
		},
		"the node makes up a revision": {
			runs: "app:7", image: "app:1", need: corev1.ConditionTrue, reason: api.ReasonRevisionUnknown, words: `"app-7"`,
		},
		"somebody has changed the pod": {
			meanwhile: func(m *model) {
				m.touch("n1", func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "app:hand" })
			},
			image: "app:hand", need: corev1.ConditionTrue, reason: api.ReasonImagesDiffer, words: "somebody has changed it",
		},
		"the pod was drained": {
			meanwhile: func(m *model) { m.api.with(func() { m.api.endLocked(m.podsLocked()["n1"][0].DeepCopy()) }) },
		},
		"the Node was deleted": {
			meanwhile: func(m *model) {
				m.api.with(func() {
					m.api.removeLocked("pods", m.podsLocked()["n1"][0].DeepCopy())
					m.api.removeLocked("nodes", m.api.objects["nodes"]["/n1"])
				})
			},
		},
		"the DaemonSet was deleted": {
			meanwhile: func(m *model) {
				m.api.with(func() {
					m.api.removeLocked("daemonsets", m.daemonSetLocked())
				})
			},
			image: "app:1", need: corev1.ConditionTrue, // until the garbage collector has found it
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T) {
				m := newOfflineModel(t, 3)
				before, runs := m.pod("n1"), tt.runs
				if runs == "" {
					runs = "app:2"
				}
				m.turn("n1", corev1.ConditionUnknown)
				m.upgradesOffline("n1", runs)
				if tt.meanwhile != nil {
					tt.meanwhile(m)
				}
				time.Sleep(time.Minute)
				begin, started := time.Now(), m.ran(before).restarted
				gone := func() bool {
					return !slices.ContainsFunc(m.onNode("n1"), func(pod *corev1.Pod) bool { return pod.UID == before.UID })
				}
				if !gone() {
					m.hubReports("n1", runs, corev1.ConditionTrue) // and then the heartbeat
					m.turn("n1", corev1.ConditionTrue)
				}
				time.Sleep(10 * time.Minute)
				if tt.image == "" {
					if !gone() {
						t.Errorf("the pod is still there: %+v", m.pod("n1"))
					}
					m.fewer(0, begin, "PATCH", "pods")
					return
				}
				m.expectReturn(before, tt.image, tt.need, tt.reason, tt.words)
				m.fewer(40, begin, "PATCH", "pods") // with the dry runs
				if tt.reason == "" {
					if name != "the DaemonSet was deleted" && m.ran(before).restarted != started {
						t.Error("a container was restarted")
					}
					return
				}
				if got := m.eventsOf(string(before.UID), "OfflineUpgradeNotReconciled"); len(got) != 1 || !strings.Contains(got[0], tt.words) {
					t.Errorf("got Events %q", got)
				}
				if got := m.unreconciled(); got != 1 {
					t.Errorf("the metric is %v", got)
				}
				if tt.heal == nil {
					return
				}
				tt.heal(m)
				time.Sleep(6 * time.Minute)
				m.expectReturn(before, "app:2", m.needed(), "", "")
				if got := m.unreconciled(); got != 0 {
					t.Errorf("the metric is %v", got)
				}
				if m.ran(before).restarted != started {
					t.Error("a container was restarted")
				}
			})
		})
	}
}

// ran returns what runs in a pod, or ran last.
func (m *model) ran(pod *corev1.Pod) container {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	return m.runs[pod.UID]
}

// onNode returns the pods on a node.
func (m *model) onNode(node string) []*corev1.Pod {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	return m.podsLocked()[node]
}

// needed is what PodNeedUpgrade is to be on a pod of app:2.
func (m *model) needed() corev1.ConditionStatus {
	if imageOf(m.daemonSet()) == "app:2" {
		return corev1.ConditionFalse
	}
	return corev1.ConditionTrue
}

// unreconciled returns the metric.
func (m *model) unreconciled() (n float64) {
	m.t.Helper()
	all, err := m.registry.Gather()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, family := range all {
		if family.GetName() == "edgehub_controller_unreconciled_pods" {
			for _, one := range family.GetMetric() {
				n += one.GetGauge().GetValue()
			}
		}
	}
	return n
}

func (m *model) expectReturn(before *corev1.Pod, image string, need corev1.ConditionStatus, reason, words string) {
	m.t.Helper()
	pod := m.pod("n1")
	hash := hashOf(image)
	if image == "app:hand" {
		hash = hashOf("app:1")
	}
	if pod.UID != before.UID || pod.Spec.Containers[0].Image != image || pod.Labels[appsv1.ControllerRevisionHashLabelKey] != hash {
		m.t.Errorf("pod %s has %s and labels %v, want pod %s and %s", pod.UID, pod.Spec.Containers[0].Image, pod.Labels, before.UID, image)
	}
	if c := api.Condition(pod, api.NeedCondition); c == nil || c.Status != need {
		m.t.Errorf("PodNeedUpgrade is %+v, want %s", c, need)
	}
	if target := m.marks()["n1"]; image == "app:2" && need == corev1.ConditionTrue && (len(target.InPlace) != 1 || target.InPlace[0].From != "app:2") {
		m.t.Errorf("it is marked with %+v", target)
	}
	c := api.Condition(pod, api.ReconciledCondition)
	if reason == "" && c != nil || reason != "" && (c == nil || c.Status != corev1.ConditionFalse || c.Reason != reason || !strings.Contains(c.Message, words)) {
		m.t.Errorf("PodOfflineUpgradeReconciled is %+v, want %q, %q", c, reason, words)
	}
	if wrong := m.violations(); len(wrong) > 0 {
		m.t.Errorf("%q", wrong)
	}
}

// With AdvancedRollingUpdate, too, a pod keeps what it runs until its node has reported that, and the cloud has followed.
func TestModelARolloutDeletesNoPodThatWasUpgradedOfflineBeforeItHasFollowed(t *testing.T) {
	for name, tt := range map[string]struct {
		ends  corev1.ConditionStatus // the probation
		image string                 // of the target
		kept  bool
	}{
		"the target is the same":   {corev1.ConditionTrue, "app:2", true},
		"the admin has moved on":   {corev1.ConditionTrue, "app:3", false},
		"the node has gone back":   {corev1.ConditionFalse, "app:2", false},
		"it does not end for long": {corev1.ConditionUnknown, "app:2", true},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T) {
				m := newOfflineModel(t, 3)
				before := m.pod("n1")
				m.turn("n1", corev1.ConditionUnknown)
				m.upgradesOffline("n1", "app:2")
				time.Sleep(time.Minute)
				m.annotate(api.StrategyAnnotation, rolling)
				m.setImage(tt.image)
				time.Sleep(5 * time.Minute)
				m.api.with(func() { m.api.faults.late = map[string]time.Duration{"pods": latest} }) // the heartbeat overtakes the report
				m.hubReports("n1", "app:2", corev1.ConditionUnknown)
				m.turn("n1", corev1.ConditionTrue)
				time.Sleep(5 * time.Minute)
				if pod := m.pod("n1"); pod.UID != before.UID || pod.Spec.Containers[0].Image != "app:1" {
					t.Errorf("in probation: pod %s with %s, want %s as it was", pod.UID, pod.Spec.Containers[0].Image, before.UID)
				}
				if c := m.progressing(); c.Reason != rollout.ReasonHeldByOwner || !strings.Contains(c.Message, "does not know yet whether the new version works") {
					t.Errorf("Progressing is %s: %s", c.Reason, c.Message)
				}
				m.api.with(func() { m.api.faults.late = nil })
				m.hubReports("n1", "app:2", tt.ends)
				time.Sleep(5 * time.Minute)
				pod := m.pod("n1")
				if kept := pod.UID == before.UID; kept != tt.kept {
					t.Errorf("pod %s, which was %s, on the node", pod.UID, before.UID)
				}
				if tt.ends == corev1.ConditionTrue && m.ran(before).image != "app:2" {
					t.Errorf("the pod ran %s", m.ran(before).image)
				}
				if tt.ends != corev1.ConditionUnknown {
					m.holds("", on())
				}
			})
		})
	}
}

// A store that was restored has the pod of before, without a report. The node shows kubelet what ran, and reports again.
func TestModelAPodOfARestoredStoreFollowsAgain(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newOfflineModel(t, 3)
		before := m.pod("n1")
		m.upgradesOffline("n1", "app:2")
		started := m.ran(before).restarted
		for range 2 {
			m.hubReports("n1", "app:2", corev1.ConditionTrue)
			time.Sleep(10 * time.Minute)
			m.expectReturn(before, "app:2", corev1.ConditionFalse, "", "")
			m.api.with(func() { m.api.putLocked("pods", before.DeepCopy()) })
			time.Sleep(time.Second)
		}
		if m.ran(before).restarted != started {
			t.Error("a container was restarted")
		}
	})
}

// A node that was taken over has the controller send a few requests, and no more.
func TestModelANodeThatReportsAllTheTimeCausesNoStorm(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newOfflineModel(t, 3)
		begin := time.Now()
		for i := range 600 {
			m.hubReports("n1", []string{"app:1", "app:2"}[i%2], corev1.ConditionTrue)
			time.Sleep(100 * time.Millisecond)
		}
		m.fewer(3*(doubling(ofPod, time.Minute)+1), begin, "PATCH", "pods")
		if wrong := m.violations(); len(wrong) > 0 {
			t.Errorf("%q", wrong)
		}
	})
}

// An owner may go back as soon as the node knows that the cloud has followed, and until then the report is the last word: a pod that
// followed both would be restarted again and again.
func TestModelAnOwnerGoesBackOnceTheReportIsGone(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newOfflineModel(t, 3)
		m.permitRollbacks()
		before := m.pod("n1")
		m.upgradesOffline("n1", "app:2")
		m.hubReports("n1", "app:2", corev1.ConditionTrue)
		time.Sleep(time.Minute)
		begin := time.Now()
		m.wish("n1", "app:1")
		time.Sleep(10 * time.Minute)
		m.has("n1", before, "app:2")
		m.fewer(0, begin, "PATCH", "pods")
		m.touch("n1", func(pod *corev1.Pod) {
			delete(pod.Annotations, api.UpgradedOfflineAnnotation)
			api.Condition(pod, api.UpgradedOfflineCondition).Reason = api.ReasonReconciled
			delete(m.shown, pod.UID)
		})
		time.Sleep(10 * time.Minute)
		m.has("n1", before, "app:1")
		m.expectRolledBack("n1", corev1.ConditionTrue, "RolledBackByOwner")
		if wrong := m.violations(); len(wrong) > 0 {
			t.Errorf("%q", wrong)
		}
	})
}

// It is not known whether a pod was deleted, and then its node reports: it is not deleted a second time, also not if the watch is behind.
func TestModelADeletionThatIsSentAgainHeedsTheReport(t *testing.T) {
	for name, late := range map[string]time.Duration{"the report is seen": 0, "the watch is behind": latest} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T) {
				m := newOfflineModel(t, 3)
				before := m.pod("n1")
				m.refuse("DELETE pods", refusal{"", func(string) error { return apierrors.NewInternalError(errors.New("etcd has no leader")) }}, "n1")
				begin := time.Now()
				m.annotate(api.StrategyAnnotation, rolling)
				for m.api.count(begin, "DELETE", "pods") < 3 {
					time.Sleep(tick)
				}
				m.api.with(func() { m.api.faults.late = map[string]time.Duration{"pods": late} })
				m.hubReports("n1", "app:2", corev1.ConditionUnknown)
				m.heal()
				time.Sleep(3 * time.Minute)
				m.api.with(func() { m.api.faults.late = nil })
				time.Sleep(3 * time.Minute)
				if got := m.pod("n1"); got.UID != before.UID || !got.DeletionTimestamp.IsZero() {
					t.Errorf("pod %s was deleted, and its node has reported", before.UID)
				}
				if m.updated() != 2 {
					t.Errorf("%d nodes are updated", m.updated())
				}
				m.hubReports("n1", "app:2", corev1.ConditionTrue)
				time.Sleep(5 * time.Minute)
				m.has("n1", before, "app:2")
				m.holds("", on())
			})
		})
	}
}

// Without its hub, a node that is Ready never reports the outcome of an upgrade. One that is away may do so when it returns.
func TestModelANodeThatDoesNotReportIsNoticed(t *testing.T) {
	for name, status := range map[string]corev1.ConditionStatus{
		"its probation does not end": corev1.ConditionUnknown,
		"it does not say to what":    corev1.ConditionTrue,
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T) {
				m := newOfflineModel(t, 3)
				for _, node := range []string{"n1", "n2"} {
					m.hubReports(node, "app:2", status)
					m.touch(node, func(pod *corev1.Pod) { delete(pod.Annotations, api.UpgradedOfflineAnnotation) })
				}
				m.turn("n2", corev1.ConditionUnknown)
				expect := func(reason string) {
					t.Helper()
					c := api.Condition(m.pod("n1"), api.ReconciledCondition)
					if reason == "" && c != nil || reason != "" && (c == nil || c.Reason != reason || !strings.Contains(c.Message, "6h0m0s")) {
						t.Errorf("PodOfflineUpgradeReconciled is %+v, want %q", c, reason)
					}
					if got := m.unreconciled(); (got == 1) != (reason != "") {
						t.Errorf("the metric is %v", got)
					}
				}
				time.Sleep(5 * time.Hour)
				expect("")
				time.Sleep(2 * time.Hour)
				expect(api.ReasonNoReport)
				m.turn("n1", corev1.ConditionUnknown) // it reboots
				time.Sleep(time.Minute)
				expect(api.ReasonNoReport)
				m.turn("n1", corev1.ConditionTrue)
				time.Sleep(time.Hour)
				expect(api.ReasonNoReport)
				if got := m.eventsOf(m.podOn("n1"), "OfflineUpgradeNotReconciled"); len(got) != 1 {
					t.Errorf("got Events %q", got)
				}
				m.hubReports("n1", "app:2", corev1.ConditionTrue)
				time.Sleep(time.Minute)
				expect("")
				m.has("n1", m.pod("n1"), "app:2")
			})
		})
	}
}

// A node may write a report on its own pods, also on those of a workload without the annotation for upgrades in place.
func TestModelAReportCountsForNothingWithoutTheAnnotation(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newOfflineModel(t, 3)
		m.annotate(api.OfflineUpgradeAnnotation, "")
		time.Sleep(time.Minute)
		before, begin := m.pod("n1"), time.Now()
		m.hubReports("n1", "app:2", corev1.ConditionTrue)
		time.Sleep(time.Hour)
		m.has("n1", before, "app:1")
		m.fewer(0, begin, "PATCH", "pods")
		if c := api.Condition(m.pod("n1"), api.ReconciledCondition); c != nil || m.unreconciled() != 0 {
			t.Errorf("%d pods are unreconciled: %+v", int(m.unreconciled()), c)
		}
		if got := m.eventsOf(string(before.UID), "OfflineUpgradeNotReconciled"); len(got) > 0 {
			t.Errorf("got Events %q", got)
		}
	})
}

// What another controller has found out of many pods stands on them until this one has found it out.
func TestModelARestartChangesNothingOnPodsThatAreNotReconciled(t *testing.T) {
	simulate(t, func(t *testing.T) {
		const nodes = 60
		m := newOfflineModel(t, nodes)
		m.admitPatches(refusesImages)
		m.setImage("app:3")
		for i := range nodes {
			m.hubReports(fmt.Sprintf("n%d", i+1), "app:2", corev1.ConditionTrue)
		}
		time.Sleep(10 * time.Minute)
		if got := m.unreconciled(); got != nodes {
			t.Fatalf("the metric is %v", got)
		}
		begin := time.Now()
		m.start()
		for range 100 {
			time.Sleep(tick)
			if got := m.unreconciled(); got != nodes {
				t.Fatalf("after %v, the metric is %v", time.Since(begin), got)
			}
		}
		time.Sleep(10 * time.Minute)
		m.fewer(0, begin, "PATCH", "pods/status")
		if got := m.eventsOf(m.podOn("n1"), "OfflineUpgradeNotReconciled"); len(got) != 1 {
			t.Errorf("got Events %q", got)
		}
	})
}
