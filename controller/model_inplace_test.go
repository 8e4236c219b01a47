package controller_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// newOfflineModel is a model of a DaemonSet whose pods owners may upgrade while the cloud is away. Its pods have images of app:1, and
// the target is app:2.
func newOfflineModel(t *testing.T, nodes int) *model {
	t.Helper()
	m := newAskingModel(t, nodes, 1, "OTA")
	m.annotate(api.OfflineUpgradeAnnotation, "InPlace")
	m.start()
	m.setImage("app:2")
	time.Sleep(time.Minute)
	return m
}

// marks returns what the pods of all nodes are marked with.
func (m *model) marks() map[string]api.Target {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	out := map[string]api.Target{}
	for node, pods := range m.podsLocked() {
		out[node], _ = api.NextOf(pods[0])
	}
	return out
}

// dryRuns returns how many patches were asked about.
func (m *model) dryRuns() int {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	return len(m.api.dryRuns)
}

// admitPatches has admission answer this to patches that change the image.
func (m *model) admitPatches(say func(after *corev1.Pod) error) {
	m.api.with(func() {
		m.api.tried = func(before, after *corev1.Pod) error {
			if before.Spec.Containers[0].Image == after.Spec.Containers[0].Image {
				return nil
			}
			m.api.calls = append(m.api.calls, call{time.Now(), "TRY", "pods", after.Name})
			return say(after)
		}
	})
}

var errWebhookDown = apierrors.NewInternalError(errors.New(`failed calling webhook "w": EOF`))

func refusesImages(*corev1.Pod) error { return apierrors.NewForbidden(podResource, "", errViolates) }

func TestModelPodsAreMarkedForUpgradesWithoutTheCloudAndAskedForOnce(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newOfflineModel(t, 3)
		marked := func(from, to string) {
			t.Helper()
			for node, target := range m.marks() {
				if !slices.Equal(target.InPlace, []api.ImageChange{{Name: "app", From: from, To: to}}) || target.NotInPlace != "" {
					t.Errorf("%s: %+v", node, target)
				}
			}
		}
		marked("app:1", "app:2")
		time.Sleep(time.Hour)
		m.report("n1", corev1.ConditionFalse) // a pod may change a lot
		m.report("n1", corev1.ConditionTrue)
		for _, phase := range []corev1.PodPhase{corev1.PodFailed, corev1.PodRunning, corev1.PodFailed, corev1.PodRunning} {
			m.touch("n1", func(pod *corev1.Pod) { pod.Status.Phase = phase })
			time.Sleep(time.Minute)
		}
		marked("app:1", "app:2")
		m.start()
		time.Sleep(time.Hour)
		if got := m.dryRuns(); got != 3 {
			t.Errorf("%d questions about 3 pods", got)
		}
		m.setImage("app:3")
		time.Sleep(time.Minute)
		marked("app:1", "app:3")
		m.touch("n2", func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "app:hand" })
		time.Sleep(time.Minute)
		if target := m.marks()["n2"]; target.InPlace != nil || !strings.Contains(target.NotInPlace, "another image than its revision") {
			t.Errorf("a pod that somebody has changed: %+v", target)
		}
		if got := m.dryRuns(); got != 6 {
			t.Errorf("%d questions about 3 pods and 2 targets", got)
		}
		m.annotate(api.OfflineUpgradeAnnotation, "")
		time.Sleep(time.Minute)
		for node, target := range m.marks() {
			if target.InPlace != nil || target.NotInPlace != "" {
				t.Errorf("%s, once it is not permitted: %+v", node, target)
			}
		}
	})
}

// The target of a pod has the number of its revision, also where admission was asked for it, and all pods have that of the newest. Another number is no
// other question.
func TestModelTargetsHaveTheNumberOfTheirRevision(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newOfflineModel(t, 2)
		expect := func(when string, newest int64, want map[string]int64) {
			t.Helper()
			time.Sleep(time.Minute)
			m.api.with(func() {
				for node, pods := range m.podsLocked() {
					if policy, err := api.PolicyOf(pods[0]); err != nil || policy.Newest != newest {
						t.Errorf("%s, the pod on %s: %+v, %v", when, node, policy, err)
					}
				}
			})
			got := map[string]int64{}
			for node, target := range m.targets() {
				if got[node] = target.Number; !target.Admitted {
					t.Errorf("%s, the target of the pod on %s is not what admission makes of it", when, node)
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", when, got, want)
			}
		}
		expect("the second revision", 2, map[string]int64{"n1": 2, "n2": 2})
		asked, tried := m.asked(), m.dryRuns()
		m.api.with(func() {
			revision := m.api.objects["controllerrevisions"][namespace+"/"+daemonSetName+"-app-2"].DeepCopyObject().(*appsv1.ControllerRevision)
			revision.Revision = 7
			m.api.putLocked("controllerrevisions", revision)
		})
		expect("it has another number", 7, map[string]int64{"n1": 7, "n2": 7})
		if m.asked() != asked || m.dryRuns() != tried {
			t.Errorf("the apiserver was asked for %d pods and %d patches again", m.asked()-asked, m.dryRuns()-tried)
		}
		m.api.with(func() { m.api.endLocked(m.podsLocked()["n1"][0].DeepCopy()) }) // its owner upgrades
		expect("one is up to date", 7, map[string]int64{"n2": 7})
		m.setImage("app:1")
		expect("an undo", 8, map[string]int64{"n1": 8})
	})
}

func TestModelWhatAdmissionSaysDecidesWhetherAPodIsMarked(t *testing.T) {
	for name, tt := range map[string]struct {
		say   func(*corev1.Pod) error
		words string // of the mark; "": it says neither
		final bool   // of a pod about which the apiserver is asked once; else it is asked again, and the pod is marked once it admits
	}{
		"it refuses the images": {refusesImages, violates, false},
		"it rewrites them":      {func(pod *corev1.Pod) error { pod.Spec.Containers[0].Image = "site/app:2"; return nil }, "from app:2 to site/app:2", false},
		"the pod pulls always":  {func(pod *corev1.Pod) error { pod.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways; return nil }, "imagePullPolicy: Always", true},
		"a webhook refuses dry runs": {func(*corev1.Pod) error {
			return apierrors.NewBadRequest("admission webhook \"w\" does not support dry run")
		}, "does not support dry run", false},
		"a webhook is down":  {func(*corev1.Pod) error { return errWebhookDown }, "", false},
		"it denies with 404": {func(*corev1.Pod) error { return deniedWith(404, "no such lock") }, "no such lock", false},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T) {
				m := newAskingModel(t, 3, 1, "OTA")
				m.annotate(api.OfflineUpgradeAnnotation, "InPlace")
				m.admitPatches(tt.say)
				m.start()
				begin := time.Now()
				m.setImage("app:2")
				time.Sleep(time.Hour)
				for node, target := range m.marks() {
					if target.InPlace != nil || !strings.Contains(target.NotInPlace, tt.words) || (target.NotInPlace == "") != (tt.words == "") {
						t.Errorf("%s: %+v", node, target)
					}
				}
				if tt.final {
					m.fewer(3, begin, "TRY", "pods")
					return
				}
				m.fewer(3*12, begin, "TRY", "pods")
				m.admitPatches(func(*corev1.Pod) error { return nil })
				time.Sleep(11 * time.Minute)
				for node, target := range m.marks() {
					if target.InPlace == nil || target.NotInPlace != "" {
						t.Errorf("%s, once it is admitted: %+v", node, target)
					}
				}
			})
		})
	}
}

// Many pods take turns, also those that have to be asked about again.
func TestModelQuestionsAboutManyPodsAreSpread(t *testing.T) {
	for name, say := range map[string]func(*corev1.Pod) error{
		"all are admitted":  func(*corev1.Pod) error { return nil },
		"a webhook is down": func(*corev1.Pod) error { return errWebhookDown },
		"all are refused":   refusesImages,
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T) {
				m := newOfflineModel(t, 1)
				m.api.with(func() {
					for i := range 200 {
						node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m%d", i)}}
						m.turnLocked(node, corev1.ConditionTrue)
					}
				})
				time.Sleep(time.Minute)
				m.admitPatches(say)
				begin := time.Now()
				m.setImage("app:3")
				time.Sleep(10 * time.Second)
				m.fewer(70, begin, "TRY", "pods")
				time.Sleep(2 * time.Minute)
				m.fewer(10+130*5, begin, "TRY", "pods")
				m.admitPatches(func(*corev1.Pod) error { return nil })
				time.Sleep(12 * time.Minute)
				for node, target := range m.marks() {
					if target.InPlace == nil {
						t.Errorf("%s: %+v", node, target)
					}
				}
			})
		})
	}
}

// While a webhook takes seconds for each question, all else goes on.
func TestModelAWebhookThatIsSlowHoldsUpNothingElse(t *testing.T) {
	for name, returning := range map[string]bool{"before an outage": false, "after an outage": true} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T) {
				const nodes = 40
				m := newOfflineModel(t, nodes)
				m.api.with(func() { m.api.faults.slow = 5 * time.Second })
				for i := range nodes {
					if node := fmt.Sprintf("n%d", i+1); returning {
						m.upgradesOffline(node, "app:2")
						m.hubReports(node, "app:2", corev1.ConditionTrue)
					}
				}
				m.setImage("app:3")
				time.Sleep(20 * time.Second)
				for node, target := range m.marks() {
					if target.Revision != "app-3" {
						t.Errorf("%s: the target is %q", node, target.Revision)
					}
				}
				time.Sleep(15 * time.Minute)
				for node, target := range m.marks() {
					if image := m.pod(node).Spec.Containers[0].Image; len(target.InPlace) == 0 || returning != (image == "app:2") {
						t.Errorf("%s has %s, and the mark %+v", node, image, target)
					}
				}
			})
		})
	}
}

// An annotation of the pod template may look like a mark. It has no condition, without which no hub reads it either.
func TestModelAMarkWithoutItsConditionDoesNotCount(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newAskingModel(t, 1, 1, "OTA")
		m.annotate(api.OfflineUpgradeAnnotation, "InPlace")
		m.admitPatches(refusesImages)
		m.setImage("app:2")
		time.Sleep(time.Second)
		m.touch("n1", func(pod *corev1.Pod) {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, api.TargetAnnotation, api.Target{
				Revision: "app-2", Containers: []api.TargetImage{{Name: "app", Image: "app:2"}},
				InPlace: []api.ImageChange{{Name: "app", From: "app:1", To: "app:2"}},
			}.Encode())
		})
		m.start()
		time.Sleep(time.Minute)
		if target := m.marks()["n1"]; target.InPlace != nil || !strings.Contains(target.NotInPlace, violates) {
			t.Errorf("it is marked with %+v", target)
		}
	})
}
