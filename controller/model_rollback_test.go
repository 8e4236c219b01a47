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
	"github.com/edgehub-io/edgehub/ota/api"
)

// permitRollbacks lets owners go back.
func (m *model) permitRollbacks() {
	m.annotate(api.OwnerRollbackAnnotation, api.RollbackAllowed)
}

// wish annotates the pods on a node as its hub does when the owner goes back to an image.
func (m *model) wish(node, image string) {
	m.api.with(func() {
		for _, pod := range m.podsLocked()[node] {
			if pod.Spec.NodeName == "" || !pod.DeletionTimestamp.IsZero() {
				continue
			}
			pod = pod.DeepCopy()
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, api.RollbackAnnotation,
				api.Rollback{Revision: hashOf(image), From: m.targetLocked(), Requested: metav1.Now()}.Encode())
			m.api.putLocked("pods", pod)
		}
	})
}

// ownersUpgrade has all nodes' owners upgrade.
func (m *model) ownersUpgrade() {
	m.api.with(func() {
		for _, pods := range m.podsLocked() {
			m.api.endLocked(pods[0].DeepCopy())
		}
	})
	time.Sleep(time.Minute)
}

// report sets the Ready condition of the pods on a node, in place of its kubelet.
func (m *model) report(node string, ready corev1.ConditionStatus) {
	m.api.with(func() {
		for _, pod := range m.podsLocked()[node] {
			pod = pod.DeepCopy()
			c := api.Condition(pod, corev1.PodReady)
			c.Status, c.LastTransitionTime = ready, metav1.Now()
			m.failing[pod.UID] = ready != corev1.ConditionTrue
			m.api.putLocked("pods", pod)
		}
	})
}

// pod returns the pod on a node.
func (m *model) pod(node string) *corev1.Pod {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	return m.podsLocked()[node][0].DeepCopy()
}

// image expects the only pod on a node to be this one, with this image.
func (m *model) has(node string, before *corev1.Pod, image string) {
	m.t.Helper()
	pod := m.pod(node)
	if got := pod.Spec.Containers[0].Image; pod.UID != before.UID || got != image || pod.Labels[appsv1.ControllerRevisionHashLabelKey] != hashOf(image) {
		m.t.Errorf("pod %s on %s has %s and labels %v, want pod %s and %s", pod.UID, node, got, pod.Labels, before.UID, image)
	}
}

func (m *model) expectRolledBack(node string, status corev1.ConditionStatus, reason string) {
	m.t.Helper()
	if c := api.Condition(m.pod(node), api.RolledBackCondition); c == nil || c.Status != status || c.Reason != reason {
		m.t.Errorf("PodRolledBack on %s is %+v, want %s, %s", node, c, status, reason)
	}
}

func TestModelAnOwnerGoesBackUntilTheNextRevision(t *testing.T) {
	for _, strategy := range []string{rolling, "OTA"} {
		t.Run(strategy, func(t *testing.T) {
			simulate(t, func(t *testing.T) {
				m := newModel(t, 3, 1, strategy)
				m.permitRollbacks()
				m.start()
				upgradeAll := func(image string) {
					m.setImage(image)
					time.Sleep(time.Minute)
					if strategy == rolling {
						return
					}
					m.ownersUpgrade()
				}
				upgradeAll("app:2")
				before := m.pod("n1")
				m.wish("n1", "app:1")
				time.Sleep(10 * time.Minute)
				m.has("n1", before, "app:1")
				m.expectRolledBack("n1", corev1.ConditionTrue, "RolledBackByOwner")
				need := api.Condition(m.pod("n1"), api.NeedCondition)
				if target, ok, err := api.TargetOf(m.pod("n1")); need == nil || need.Status != corev1.ConditionTrue ||
					need.Reason != "RolledBackByOwner" || api.RevisionOf(need) != "app-2" || !ok || err != nil || target.Revision != "app-2" {
					t.Errorf("the owner cannot upgrade again: %+v, target %+v", need, target)
				}
				if all := m.eventsOf(string(before.UID), "RolledBack"); len(all) != 1 || !strings.Contains(all[0], "controllerrevision app-1") {
					t.Errorf("got Events %q", all)
				}
				if c := m.progressing(); strategy == rolling && (c.Reason != rollout.ReasonRolledBack || c.Status != corev1.ConditionFalse ||
					!strings.Contains(c.Message, "2 of 3 nodes updated, 1 rolled back by their owners (n1)")) {
					t.Errorf("the rollout is %s: %s", c.Reason, c.Message)
				}
				m.wish("n2", "app:7") // there is no such revision
				time.Sleep(time.Minute)
				m.expectRolledBack("n2", corev1.ConditionFalse, "UnknownRevision")
				if all := m.eventsOf(m.podOn("n2"), "RollbackRefused"); len(all) != 1 || !strings.Contains(all[0], `"app-7"`) {
					t.Errorf("got Events %q", all)
				}
				m.setImage("app:3")
				time.Sleep(time.Minute)
				if strategy == "OTA" {
					m.has("n1", before, "app:1")
					m.expectRolledBack("n1", corev1.ConditionFalse, "NewerRevision")
					if c := api.Condition(m.pod("n1"), api.NeedCondition); c.Reason != "UpgradeAvailable" {
						t.Errorf("got %+v", c)
					}
				} else {
					m.holds("", on())
				}
				if all := m.eventsOf(string(before.UID), "RollbackRefused"); len(all) > 0 {
					t.Errorf("a rollback that has ended is reported as refused: %q", all)
				}
				if len(m.violations()) > 0 {
					t.Errorf("%q", m.violations())
				}
			})
		})
	}
}

func TestModelOwnersMayNotGoBackWhereThatIsDenied(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := startModel(t, 3, 1, rolling) // denied by default
		m.rollsOut("app:2")
		begin, before := time.Now(), m.pod("n1")
		m.wish("n1", "app:1")
		time.Sleep(time.Minute)
		m.has("n1", before, "app:2")
		m.expectRolledBack("n1", corev1.ConditionFalse, "NotPermitted")
		m.holds("", on())
		m.fewer(1, begin, "PATCH", "pods")
	})
}

// rewrite has admission take images from a registry on the site, as new pods are created.
func (m *model) rewrite() {
	m.api.with(func() {
		m.api.mutating = func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Image = strings.Replace(pod.Spec.Containers[0].Image, "app:", "site/app:", 1)
		}
	})
}

// askedFor returns how often the apiserver was asked for a pod of the revision with this image.
func (m *model) askedFor(image string) (n int) {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	for _, pod := range m.api.asked {
		if pod.Labels[appsv1.ControllerRevisionHashLabelKey] == hashOf(image) {
			n++
		}
	}
	return n
}

// A node could not reach the registry that the template names: what it gets is what a new pod of the earlier revision would
// get, and not what the template says.
func TestModelAnOwnerGoesBackToTheImageThatIsAdmitted(t *testing.T) {
	for _, strategy := range []string{rolling, "OTA"} {
		for name, tt := range map[string]struct {
			refused, image, reason, words string
		}{
			"it is admitted":        {"", "site/app:1", "RolledBackByOwner", ""},
			"it is refused":         {"site/app:1", "site/app:2", "NotAdmitted", violates},
			"nobody could be asked": {"", "site/app:2", "NotInPlace", "another image than the pod template, and what admission makes of the earlier version is not known"},
		} {
			t.Run(strategy+", "+name, func(t *testing.T) {
				simulate(t, func(t *testing.T) {
					m := newAskingModel(t, 3, 1, strategy)
					if name == "nobody could be asked" {
						m.options.Namespace = ""
					}
					m.rewrite()
					m.permitRollbacks()
					m.start()
					m.setImage("app:2")
					time.Sleep(time.Minute)
					m.api.with(func() { // with OTA, an owner upgrades
						if pod := m.podsLocked()["n1"][0]; pod.Spec.Containers[0].Image == "app:1" {
							m.api.endLocked(pod.DeepCopy())
						}
					})
					time.Sleep(time.Minute)
					before, asked := m.pod("n1"), m.askedFor("app:1")
					m.admit(tt.refused)
					m.wish("n1", "app:1")
					time.Sleep(time.Hour)
					after := m.pod("n1")
					if got := after.Spec.Containers[0].Image; after.UID != before.UID || got != tt.image {
						t.Errorf("pod %s on n1 has %s, want pod %s and %s", after.UID, got, before.UID, tt.image)
					}
					c := api.Condition(after, api.RolledBackCondition)
					if c == nil || c.Reason != tt.reason || !strings.Contains(c.Message, tt.words) {
						t.Errorf("PodRolledBack is %+v, want %s, %q", c, tt.reason, tt.words)
					}
					if n := m.askedFor("app:1") - asked; n > 1 {
						t.Errorf("it was asked %d times for one wish", n)
					}
				})
			})
		}
	}
}

// Before an owner asks, the node knows what it cannot go back to.
func TestModelNodesKnowWhatTheyCannotGoBackTo(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newModel(t, 3, 1, rolling)
		m.permitRollbacks()
		m.start()
		m.rollsOut("app:2")
		time.Sleep(time.Minute)
		if problem := api.NoWayBack(m.pod("n1"), hashOf("app:1")); problem != "" {
			t.Errorf("to the revision before: %q", problem)
		}
		begin := time.Now()
		m.api.with(func() { // as with revisionHistoryLimit: 0
			m.api.removeLocked("controllerrevisions", m.api.objects["controllerrevisions"][namespace+"/"+daemonSetName+"-"+hashOf("app:1")])
		})
		time.Sleep(time.Minute)
		if problem := api.NoWayBack(m.pod("n1"), hashOf("app:1")); !strings.Contains(problem, "revisionHistoryLimit") {
			t.Errorf("once the cluster has it no more: %q", problem)
		}
		m.fewer(3, begin, "PATCH", "pods/status")
	})
}

// A refusal by an admission webhook, say, is retried with backoff, reported once, and delays no other.
func TestModelARollbackThatTheAPIServerRefusesIsTriedAgain(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newModel(t, 3, 1, rolling)
		m.permitRollbacks()
		m.start()
		m.rollsOut("app:2")
		m.refuse("PATCH pods", refusals[0], "n1")
		begin, before := time.Now(), m.pod("n1")
		m.wish("n1", "app:1")
		time.Sleep(10 * time.Minute)
		m.has("n1", before, "app:2")
		m.fewer(30, begin, "PATCH", "pods")
		if all := m.told("RollbackFailed"); len(all) != 1 || !strings.Contains(all[0], "not today") {
			t.Errorf("got Events %q", all)
		}
		m.heal()
		time.Sleep(10 * time.Minute)
		m.has("n1", before, "app:1")
	})
}

// An owner's rollback restarts the pod, which kubelet has yet to report when the next step is planned.
func TestModelAPodThatItsOwnerRollsBackCountsWhileItRestarts(t *testing.T) {
	for name, tt := range map[string]struct {
		down, up time.Duration // when kubelet reports it; 0: never
		most     time.Duration // when the other pod is to be deleted at the latest
	}{
		"kubelet reports the restart":     {5 * time.Second, 8 * time.Second, 9 * time.Second},
		"kubelet reports nothing":         {0, 0, 42 * time.Second},
		"the container stops very slowly": {31 * time.Second, 45 * time.Second, 46 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T) {
				m := newModel(t, 3, 1, rolling)
				m.api.with(func() { m.slow = true })
				m.permitRollbacks()
				m.annotate(api.PartitionAnnotation, "1")
				m.start()
				m.setImage("app:2")
				time.Sleep(time.Minute)
				if m.updated() != 2 {
					t.Fatalf("%d nodes are updated, want all but the one of the partition", m.updated())
				}
				back := "n1"
				if m.pod(back).Spec.Containers[0].Image == "app:1" {
					back = "n2"
				}
				begin := time.Now()
				m.wish(back, "app:1")
				time.Sleep(tick)
				m.annotate(api.PartitionAnnotation, "") // the rest may go
				for m.api.count(begin, "DELETE", "pods") == 0 && time.Since(begin) < 2*time.Minute {
					time.Sleep(tick)
					switch time.Since(begin) {
					case tt.down:
						m.report(back, corev1.ConditionFalse)
					case tt.up:
						m.report(back, corev1.ConditionTrue)
					}
				}
				least := tt.up
				if tt.down == 0 {
					least = 39 * time.Second
				}
				if got := time.Since(begin); got < least || got > tt.most {
					t.Errorf("the pod of another node was deleted after %v, want between %v and %v", got, least, tt.most)
				}
				time.Sleep(time.Minute)
				if image := m.pod(back).Spec.Containers[0].Image; image != "app:1" {
					t.Errorf("the pod that was rolled back has %s", image)
				}
			})
		})
	}
}

// While a webhook takes seconds for what owners go back to, the workload goes on.
func TestModelManyOwnersGoBackWhileAWebhookIsSlow(t *testing.T) {
	simulate(t, func(t *testing.T) {
		const nodes = 40
		m := newAskingModel(t, nodes, 1, "OTA")
		m.permitRollbacks()
		m.start()
		m.setImage("app:2")
		time.Sleep(time.Minute)
		m.ownersUpgrade()
		m.api.with(func() { m.api.faults.slow = 5 * time.Second })
		for i := range nodes {
			m.wish(fmt.Sprintf("n%d", i+1), "app:1")
		}
		time.Sleep(6 * time.Second) // the first one is asked about
		m.setImage("app:3")
		time.Sleep(20 * time.Second)
		for node, target := range m.marks() {
			if target.Revision != "app-3" {
				t.Errorf("%s: the target is %q", node, target.Revision)
			}
		}
	})
}

// A pod that is of the earlier revision in the cloud alone is not rolled back: the condition has the reason.
func TestModelAPodThatRunsWhatTheCloudRefusesIsNotRolledBack(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newOfflineModel(t, 3)
		m.permitRollbacks()
		before := m.pod("n1")
		m.admitPatches(refusesImages)
		m.upgradesOffline("n1", "app:2")
		m.hubReports("n1", "app:2", corev1.ConditionTrue)
		m.wish("n1", "app:1")
		time.Sleep(time.Minute)
		m.has("n1", before, "app:1")
		m.expectRolledBack("n1", corev1.ConditionFalse, api.ReasonPatchRefused)
		if c := api.Condition(m.pod("n1"), api.RolledBackCondition); c != nil && !strings.Contains(c.Message, violates) {
			t.Errorf("the owner is told: %q", c.Message)
		}
		m.admitPatches(func(*corev1.Pod) error { return nil })
		time.Sleep(10 * time.Minute)
		m.has("n1", before, "app:2") // the wish stands in this model, but so does the report
		if c := api.Condition(m.pod("n1"), api.RolledBackCondition); c != nil && c.Status == corev1.ConditionTrue {
			t.Errorf("before the report is gone, the pod is %+v", c)
		}
	})
}
