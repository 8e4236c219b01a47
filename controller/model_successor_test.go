package controller_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/successor"
	"github.com/edgehub-io/edgehub/ota/api"
)

const violates = `violates PodSecurity "baseline:latest": hostPath volumes (volume "h")`

var errViolates = errors.New(violates)

// newAskingModel is newModel with a controller that has the right to ask for successors.
func newAskingModel(t *testing.T, nodes, most int, strategy string) *model {
	t.Helper()
	m := newModel(t, nodes, most, strategy)
	m.options.Namespace = namespace
	return m
}

// admit has admission refuse new pods that have this image.
func (m *model) admit(refused string) {
	m.api.with(func() {
		m.api.admitting = func(pod *corev1.Pod) error {
			if pod.Spec.Containers[0].Image == refused {
				return apierrors.NewForbidden(podResource, pod.Name, errViolates)
			}
			return nil
		}
	})
}

// asked is how many dry runs there were.
func (m *model) asked() int {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	return len(m.api.asked)
}

// createLocked creates no pod for the controller: all but dry runs are denied, as deploy/admission has it.
func (a *apiserver) createLocked(query url.Values, body []byte) (any, error) {
	pod := &corev1.Pod{}
	if err := json.Unmarshal(body, pod); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if query.Get("dryRun") != metav1.DryRunAll {
		return nil, apierrors.NewForbidden(podResource, pod.GenerateName, errors.New(
			"ValidatingAdmissionPolicy '"+successor.Policy+"' with binding '"+successor.Policy+"' denied request: as dry runs only"))
	}
	a.asked = append(a.asked, pod)
	if a.mutating != nil {
		a.mutating(pod)
	}
	if a.admitting != nil {
		if err := a.admitting(pod); err != nil {
			return nil, err
		}
	}
	if _, exists := a.objects["pods"][keyOf(pod)]; exists && pod.Name != "" {
		return nil, apierrors.NewAlreadyExists(podResource, pod.Name)
	}
	return pod, nil
}

func fieldsOf(o object) fields.Set {
	out := fields.Set{"metadata.name": o.GetName()}
	if pod, ok := o.(*corev1.Pod); ok {
		out["spec.nodeName"], out["status.phase"] = pod.Spec.NodeName, string(pod.Status.Phase)
	}
	return out
}

// No pod is deleted whose successor admission would refuse, also none that serves nobody; and all go on by
// themselves when it would not.
func TestModelNoPodIsDeletedWhoseSuccessorIsRefused(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newAskingModel(t, 5, 5, rolling)
		m.start()
		m.admit("app:2")
		m.report("n1", corev1.ConditionFalse)
		begin := time.Now()
		m.setImage("app:2")
		time.Sleep(time.Hour)
		if len(m.deleted) > 0 {
			t.Errorf("the pods on %v were deleted", m.deleted)
		}
		c := m.progressing()
		if c.Status != corev1.ConditionFalse || c.Reason != rollout.ReasonSuccessorRefused || !strings.Contains(c.Message, violates) {
			t.Errorf("Progressing is %s because of %s: %s", c.Status, c.Reason, c.Message)
		}
		m.fewer(2+60/10+6, begin, "POST", "pods") // the proof each hour, and a question from 30 s up to 10 min
		m.admit("")
		time.Sleep(11 * time.Minute)
		if got := m.updated(); got != 5 {
			t.Errorf("%d of 5 nodes are updated", got)
		}
	})
}

// What was admitted a moment ago is asked again before the next wave.
func TestModelARefusalStopsARolloutThatIsUnderWay(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newAskingModel(t, 5, 1, rolling)
		m.start()
		m.setImage("app:2")
		for m.updated() < 2 {
			time.Sleep(tick)
		}
		m.admit("app:2")
		time.Sleep(time.Hour)
		if got := m.updated(); got < 2 || got > 3 || m.progressing().Reason == rollout.ReasonComplete {
			t.Errorf("%d nodes are updated, %+v", got, m.progressing())
		}
		if len(m.deleted) > 3 {
			t.Errorf("the pods on %v were deleted", m.deleted)
		}
	})
}

// With OTA, owners see that the upgrade is not offered, and why.
func TestModelOwnersSeeThatTheSuccessorIsRefused(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newAskingModel(t, 3, 1, "OTA")
		m.start()
		m.admit("app:2")
		m.setImage("app:2")
		time.Sleep(time.Minute)
		blocked := func() string {
			m.api.mu.Lock()
			defer m.api.mu.Unlock()
			target, _, err := api.TargetOf(m.podsLocked()["n2"][0])
			if err != nil {
				t.Error(err)
			}
			return target.Blocked
		}
		if got := blocked(); !strings.Contains(got, violates) {
			t.Errorf("the node sees %q", got)
		}
		if r, _ := rollout.ReportOn(m.daemonSet()); r == nil || !strings.Contains(r.StateOf("n2", "app-1").Reason, "the upgrade is not offered: ") {
			t.Errorf("the report is %+v", r)
		}
		m.admit("")
		time.Sleep(11 * time.Minute)
		if got := blocked(); got != "" {
			t.Errorf("once it is admitted, the node sees %q", got)
		}
	})
}

// Nodes pull, and owners see, what admission makes of the template: images that it rewrites, containers that it
// injects, each time with another name, and requests. Another name is no reason to patch all pods.
func TestModelTheTargetIsWhatIsAdmitted(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newAskingModel(t, 3, 1, "OTA")
		m.api.with(func() {
			n := 0
			m.api.mutating = func(pod *corev1.Pod) {
				n++
				pod.Spec.Containers[0].Image = "site.example.com/" + pod.Spec.Containers[0].Image
				pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("4Gi")}
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprintf("mesh-%d", n), Image: "mesh:1"})
				pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "site"}}
			}
		})
		m.start()
		m.setImage("app:2")
		time.Sleep(time.Minute)
		target, _, err := api.TargetOf(m.pod("n2"))
		if err != nil || target.Containers[0].Image != "site.example.com/app:2" || len(target.Containers) != 2 || target.Containers[1].Image != "mesh:1" ||
			target.Requests.Memory().String() != "4Gi" || len(target.ImagePullSecrets) != 1 || !target.Admitted {
			t.Errorf("the node sees %+v, %v", target, err)
		}
		asked, begin := m.asked(), time.Now()
		time.Sleep(time.Hour)
		m.fewer(0, begin, "PATCH", "pods/status")
		if n := m.asked() - asked; n < 5 {
			t.Errorf("it was asked %d times in an hour", n)
		}
	})
}

// While Kubernetes makes no pod for a node, no other node loses its own; with the apiserver's admission not
// asked, as without deploy/admission.
func TestModelAPodThatIsNotMadeStopsTheRollout(t *testing.T) {
	simulate(t, func(t *testing.T) {
		const most = 3
		m := startModel(t, 9, most, rolling)
		m.admit("app:2")
		m.setImage("app:2")
		time.Sleep(time.Hour)
		if len(m.deleted) > most {
			t.Errorf("the pods on %v were deleted", m.deleted)
		}
		c := m.progressing()
		if c.Status != corev1.ConditionFalse || c.Reason != rollout.ReasonLacking || !strings.Contains(c.Message, "no pod for 30s on n") {
			t.Errorf("Progressing is %s because of %s: %s", c.Status, c.Reason, c.Message)
		}
		m.admit("")
		time.Sleep(time.Minute)
		m.holds("", on())
	})
}

// With OTA, no other owner is offered the upgrade then.
func TestModelAPodThatIsNotMadeBlocksOtherUpgrades(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := startModel(t, 3, 1, "OTA")
		m.setImage("app:2")
		time.Sleep(time.Minute)
		m.admit("app:2")
		blocked := func() string {
			time.Sleep(time.Minute)
			target, _, err := api.TargetOf(m.pod("n2"))
			if err != nil {
				t.Error(err)
			}
			return target.Blocked
		}
		m.api.with(func() { m.api.endLocked(m.podsLocked()["n1"][0].DeepCopy()) }) // the owner of n1 upgrades
		if got := blocked(); !strings.Contains(got, "no pod for 30s on n1") {
			t.Errorf("n2 sees %q", got)
		}
		m.annotate(api.ContinueAnnotation, hashOf("app:2"))
		if got := blocked(); got != "" {
			t.Errorf("with the admin's leave n2 sees %q", got)
		}
		m.annotate(api.ContinueAnnotation, "")
		if got := blocked(); got == "" {
			t.Error("without it n2 is offered the upgrade")
		}
		m.admit("")
		if got := blocked(); got != "" {
			t.Errorf("once the pod is made, n2 sees %q", got)
		}
	})
}

// Admission may refuse what this controller asks for, and let in what Kubernetes' own creates. A pod that is really made,
// though the apiserver goes on refusing it, counts more than its word.
func TestModelAPodThatIsMadeOutvotesARefusal(t *testing.T) {
	for _, strategy := range []string{rolling, "OTA"} {
		t.Run(strategy, func(t *testing.T) {
			simulate(t, func(t *testing.T) {
				m := newAskingModel(t, 4, 1, strategy)
				m.start()
				m.api.with(func() {
					m.api.admitting = func(pod *corev1.Pod) error {
						if pod.Name == "" {
							return apierrors.NewForbidden(podResource, pod.Name, errViolates)
						}
						return nil
					}
				})
				m.setImage("app:2")
				blocked := func() bool {
					target, _, err := api.TargetOf(m.pod("n3"))
					return err == nil && strings.Contains(target.Blocked, violates)
				}
				time.Sleep(time.Minute)
				if m.updated() > 0 || strategy != rolling && !blocked() {
					t.Errorf("%d nodes are updated", m.updated())
				}
				m.evict("n1")
				time.Sleep(time.Minute)
				if got := m.updated(); strategy == rolling && got != 4 || strategy != rolling && (got != 1 || blocked()) {
					t.Errorf("%d nodes are updated, and n3 is blocked: %t", got, strategy != rolling && blocked())
				}
			})
		})
	}
}

// It is asked for what Kubernetes' own controller would create.
func TestModelWhatIsAskedForIsTheSuccessor(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newAskingModel(t, 2, 1, rolling)
		m.start()
		m.setImage("app:2")
		time.Sleep(time.Minute)
		m.api.mu.Lock()
		defer m.api.mu.Unlock()
		if len(m.api.asked) < 2 {
			t.Fatalf("it was asked %d times", len(m.api.asked))
		}
		for _, pod := range m.api.asked {
			owner := pod.OwnerReferences[0]
			if pod.GenerateName != daemonSetName+"-" || pod.Spec.NodeName != "" || rollout.NodeOf(pod) == "" || len(pod.Spec.Tolerations) < 6 ||
				pod.Labels["controller-revision-hash"] != "app-2" || pod.Labels["app"] != daemonSetName ||
				pod.Spec.Containers[0].Image != "app:2" || owner.BlockOwnerDeletion != nil || !*owner.Controller || owner.Kind != "DaemonSet" {
				t.Errorf("asked for %+v", pod)
			}
		}
	})
}

// ask has the owner of a node ask whether the upgrade of its pod is blocked, and returns the answer.
func (m *model) ask(node, question string) api.Target {
	m.t.Helper()
	m.api.with(func() {
		pod := m.podsLocked()[node][0].DeepCopy()
		pod.Annotations[api.QuestionAnnotation] = question
		m.api.putLocked("pods", pod)
	})
	time.Sleep(3 * time.Second)
	target, _, err := api.TargetOf(m.pod(node))
	if err != nil || target.Answered != question || !target.Asks {
		m.t.Errorf("the answer to %s is %+v, %v", question, target, err)
	}
	return target
}

// Owners of many nodes ask at once: all are answered, for some nodes at a time.
func TestModelManyOwnersAskWhileAPodWaits(t *testing.T) {
	simulate(t, func(t *testing.T) {
		const nodes = 50
		m := newAskingModel(t, nodes, 1, "OTA")
		m.onePodEach()
		m.start()
		m.setImage("app:2")
		time.Sleep(time.Minute)
		m.api.with(func() {
			m.api.putLocked("pods", waiting())
			for _, pods := range m.podsLocked() {
				if pods[0].Labels["app"] == daemonSetName {
					pod := pods[0].DeepCopy()
					pod.Annotations[api.QuestionAnnotation] = "now"
					m.api.putLocked("pods", pod)
				}
			}
		})
		time.Sleep(4 * time.Second)
		for i := range nodes {
			node := fmt.Sprintf("n%d", i+1)
			if target, _, err := api.TargetOf(m.pod(node)); err != nil || target.Answered != "now" || !strings.Contains(target.Blocked, "pod batch/waits") {
				t.Errorf("%s is answered %+v, %v", node, target, err)
			}
		}
	})
}

// onePodEach gives each node a place for one pod.
func (m *model) onePodEach() {
	m.api.with(func() {
		for _, o := range m.api.objects["nodes"] {
			node := o.DeepCopyObject().(*corev1.Node)
			node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}
			m.api.putLocked("nodes", node)
		}
	})
}

// waiting is a pod that waits for a node, any.
func waiting() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "waits", UID: "waits"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: huge}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}},
		},
	}
}

// A pod that waits for a node would take the place of the old one before the next is made. The node does not see it.
func TestModelAPodThatWaitsWouldTakeTheRoom(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newAskingModel(t, 3, 1, "OTA")
		waits := waiting()
		m.onePodEach()
		m.start()
		m.setImage("app:2")
		time.Sleep(time.Minute)
		if target := m.ask("n2", "one"); target.Blocked != "" {
			t.Errorf("nobody waits: %+v", target)
		}
		m.api.with(func() { m.api.putLocked("pods", waits) })
		if target := m.ask("n2", "two"); !strings.Contains(target.Blocked, "pod batch/waits, which waits for a node") {
			t.Errorf("a pod waits: %+v", target)
		}
		begin := time.Now()
		time.Sleep(10 * time.Minute)
		if target, _, err := api.TargetOf(m.pod("n2")); err != nil || target.Blocked == "" {
			t.Errorf("it waits on: %+v, %v", target, err)
		}
		m.fewer(3*21, begin, "GET", "pods")
		m.api.with(func() {
			m.api.faults.answer = func(verb, resource, _ string) error {
				if verb == "GET" && resource == "pods" {
					return apierrors.NewInternalError(errors.New("etcd"))
				}
				return nil
			}
		})
		time.Sleep(time.Minute)
		if target, _, err := api.TargetOf(m.pod("n2")); err != nil || target.Blocked == "" {
			t.Errorf("a look that fails takes the refusal back: %+v, %v", target, err)
		}
		if target := m.ask("n1", "lost"); target.Blocked != "" || !strings.Contains(target.Unknown, "etcd") {
			t.Errorf("nobody can say: %+v", target)
		}
		m.api.with(func() { m.api.faults.answer = nil })
		if target, _, err := api.TargetOf(m.pod("n3")); err != nil || target.Blocked != "" {
			t.Errorf("nobody has asked for n3: %+v, %v", target, err)
		}
		m.api.with(func() { m.api.removeLocked("pods", waits) })
		time.Sleep(time.Minute)
		if target, _, err := api.TargetOf(m.pod("n2")); err != nil || target.Blocked != "" {
			t.Errorf("it waits no more: %+v, %v", target, err)
		}
		m.api.with(func() { m.api.putLocked("pods", waits) })
		m.setImage("app:1") // n2's pod has its question, and needs no upgrade
		time.Sleep(time.Minute)
		begin = time.Now()
		for range 20 {
			m.report("n3", corev1.ConditionFalse)
			time.Sleep(time.Second)
			m.report("n3", corev1.ConditionTrue)
			time.Sleep(time.Second)
		}
		m.fewer(0, begin, "GET", "pods")
	})
}

// An owner who asks for an upgrade gets an answer of now, not one of some minutes ago; whoever asks all the time does
// not have the apiserver asked all the time.
func TestModelOwnersAreAnsweredNow(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newAskingModel(t, 3, 1, "OTA")
		m.start()
		m.setImage("app:2")
		time.Sleep(time.Minute)
		m.admit("app:2")
		if target := m.ask("n2", "one"); !strings.Contains(target.Blocked, violates) {
			t.Errorf("right after admission refuses it: %+v", target)
		}
		m.admit("")
		if target := m.ask("n2", "two"); target.Blocked != "" {
			t.Errorf("right after admission lets it in: %+v", target)
		}
		begin := time.Now()
		m.api.with(func() {
			m.api.admitting = func(*corev1.Pod) error {
				return apierrors.NewInternalError(errors.New(`failed calling webhook "w": EOF`))
			}
		})
		if target := m.ask("n2", "three"); target.Blocked != "" || !strings.Contains(target.Unknown, "failed calling webhook") {
			t.Errorf("while a webhook is down: %+v", target)
		}
		m.admit("")
		if target := m.ask("n2", "four"); target.Unknown != "" {
			t.Errorf("once it is back: %+v", target)
		}
		m.fewer(5, begin, "PATCH", "pods/status") // of n2's pod, and of no other
		m.api.with(func() {
			m.api.admitting = func(*corev1.Pod) error {
				return apierrors.NewInternalError(errors.New(`failed calling webhook "w": EOF`))
			}
		})
		m.setImage("app:3")
		time.Sleep(time.Minute)
		if target := m.ask("n2", "five"); !strings.Contains(target.Unknown, "failed calling webhook") {
			t.Errorf("a new revision while a webhook is down: %+v", target)
		}
		m.admit("")
		asked := m.asked()
		for i := range 200 {
			m.api.with(func() {
				pod := m.podsLocked()["n2"][0].DeepCopy()
				pod.Annotations[api.QuestionAnnotation] = fmt.Sprint(i)
				m.api.putLocked("pods", pod)
			})
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		if n := m.asked() - asked; n > 12 {
			t.Errorf("it was asked %d times in 10 s", n)
		}
	})
}
