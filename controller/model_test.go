package controller_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

const rolling = "AdvancedRollingUpdate"

// simulate runs f in a synctest bubble. What client-go keeps between errors is a time, of
// whichever bubble, until which whoever has an error sleeps: that is left out.
func simulate(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	defer func() { utilruntime.ErrorHandlers = handlers }()
	klog.SetLogger(klog.New(nil)) // client-go would log a lot
	defer klog.ClearLogger()
	synctest.Test(t, f)
}

// refusal is an answer to a request to delete or patch a pod that leaves the pod as it is.
type refusal struct {
	words string
	err   func(pod string) error
}

var podResource = schema.GroupResource{Resource: "pods"}

var refusals = []refusal{
	{"not today", func(pod string) error { return apierrors.NewForbidden(podResource, pod, errors.New("not today")) }},
	{"in use", func(pod string) error { return apierrors.NewConflict(podResource, pod, errors.New("in use")) }},
	{"out of order", func(string) error { return deniedWith(500, "out of order") }},
	{"no such lock", func(string) error { return deniedWith(404, "no such lock") }},
	{"failed calling webhook", func(string) error { return apierrors.NewInternalError(errors.New(`failed calling webhook "w": EOF`)) }},
}

// deniedWith is the answer when an admission webhook denies a request with this code.
func deniedWith(code int32, words string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code,
		Message: `admission webhook "guard.example.com" denied the request: ` + words,
	}}
}

// startModel returns a model whose controller runs.
func startModel(t *testing.T, nodes, most int, strategy string) *model {
	t.Helper()
	m := newModel(t, nodes, most, strategy)
	m.start()
	return m
}

// rollsOut changes the image, and fails the test unless all is well a minute later.
func (m *model) rollsOut(image string) {
	m.t.Helper()
	m.setImage(image)
	time.Sleep(time.Minute)
	m.holds("", on())
}

// refuse has requests such as "DELETE pods" answered so for the pods on some nodes.
func (m *model) refuse(what string, r refusal, nodes ...string) {
	m.api.with(func() {
		m.api.faults.answer = func(verb, resource, name string) error {
			o := m.api.objects["pods"][namespace+"/"+name]
			if verb+" "+resource != what || o == nil || !slices.Contains(nodes, rollout.NodeOf(o.(*corev1.Pod))) {
				return nil
			}
			return r.err(name)
		}
	})
}

// breakDown makes the requests fail for which fails returns true.
func (m *model) breakDown(fails func(verb, resource string) bool) {
	m.api.with(func() {
		m.api.faults.answer = func(verb, resource, _ string) error {
			if fails(verb, resource) {
				return apierrors.NewServiceUnavailable("etcd has no leader")
			}
			return nil
		}
	})
}

// heal ends what refuse and breakDown have begun.
func (m *model) heal() { m.api.with(func() { m.api.faults.answer = nil }) }

// condition returns a condition of the DaemonSet, the zero value if it has none.
func (m *model) condition(t appsv1.DaemonSetConditionType) appsv1.DaemonSetCondition {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	return m.conditionLocked(t)
}

func (m *model) progressing() appsv1.DaemonSetCondition {
	return m.condition(api.ProgressingCondition)
}

// annotate sets an annotation of the DaemonSet; "" removes it.
func (m *model) annotate(key, value string) {
	m.change(func(ds *appsv1.DaemonSet) {
		if delete(ds.Annotations, key); value != "" {
			ds.Annotations[key] = value
		}
	})
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

// told returns the messages of Events with this reason on the DaemonSet.
func (m *model) told(reason string) []string { return m.eventsOf(string(m.daemonSet().UID), reason) }

func on(nodes ...string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return slices.Contains(nodes, rollout.NodeOf(pod)) }
}

// holds fails the test unless the conditions are correct, and so was every deletion.
func (m *model) holds(words string, stays func(*corev1.Pod) bool) {
	m.t.Helper()
	for _, wrong := range append(m.check(words, stays), m.violations()...) {
		m.t.Error(wrong)
	}
}

// fewer fails the test if there were more requests of a kind.
func (m *model) fewer(most int, since time.Time, verb, resource string) {
	m.t.Helper()
	got := m.api.count(since, verb, resource)
	m.t.Logf("%d times %s %s in %v", got, verb, resource, time.Since(since))
	if got > most {
		m.t.Errorf("%d times %s %s in %v, want at most %d", got, verb, resource, time.Since(since), most)
	}
}

// doubling is how often something is tried within a time when each wait is twice the one
// before, up to 5 minutes. The first wait is that of a pod or of a DaemonSet.
const ofPod, ofDaemonSet = 200 * time.Millisecond, 100 * time.Millisecond

func doubling(first, within time.Duration) int {
	n := 1
	for wait, at := first, time.Duration(0); at+wait <= within; n++ {
		at += wait
		wait = min(2*wait, 5*time.Minute)
	}
	return n
}

func TestModelAPodThatMayNotBeDeletedHoldsUpNoOther(t *testing.T) {
	for _, r := range refusals {
		t.Run(r.words, func(t *testing.T) {
			simulate(t, func(t *testing.T) {
				m := startModel(t, 5, 1, rolling)
				m.refuse("DELETE pods", r, "n1")
				begin := time.Now()
				m.setImage("app:2")
				time.Sleep(time.Minute)
				m.holds(r.words, on("n1"))
				time.Sleep(59 * time.Minute)
				m.holds(r.words, on("n1"))
				if got := m.told("DeletingPodsFailed"); len(got) != 1 || !strings.Contains(got[0], r.words) {
					t.Errorf("the Events are %q", got)
				}
				m.fewer(4+doubling(ofPod, time.Hour), begin, "DELETE", "pods")
				m.fewer(20, begin, "PATCH", "daemonsets/status")
				m.heal()
				time.Sleep(6 * time.Minute)
				m.holds("", on())
			})
		})
	}
}

func TestModelEveryPodIsRefused(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := startModel(t, 20, 2, rolling)
		var all []string
		for i := range 20 {
			all = append(all, fmt.Sprintf("n%d", i+1))
		}
		m.refuse("DELETE pods", refusals[0], all...)
		time.Sleep(time.Minute)
		m.setImage("app:2")
		time.Sleep(5 * time.Second)
		c := m.progressing()
		if c.Status != corev1.ConditionFalse || c.Reason != rollout.ReasonRefused || !strings.Contains(c.Message, "not today") {
			t.Errorf("after a few refusals Progressing is %s because of %s: %s", c.Status, c.Reason, c.Message)
		}
		time.Sleep(20 * time.Minute)
		m.holds("not today", on(all...))
		if most, what := m.api.busiest(); most > 120 {
			t.Errorf("%d requests in a minute: %s", most, what)
		}
	})
}

func TestModelALateWatchOfPodsCausesNoStormOfDeletions(t *testing.T) {
	simulate(t, func(t *testing.T) {
		const nodes = 20
		m := newModel(t, nodes, 1, rolling)
		m.setImage("broken:1")
		m.start()
		m.annotate(api.MaxUnavailableAnnotation, fmt.Sprint(nodes))
		m.api.with(func() { m.max = nodes })
		time.Sleep(2 * time.Minute)
		begin := time.Now()
		m.api.with(func() { m.api.faults.late = map[string]time.Duration{"pods": latest} })
		m.api.with(func() { // of every pod there is a newer version than the watch shows
			for _, pods := range m.podsLocked() {
				for _, pod := range pods {
					pod = pod.DeepCopy()
					pod.Annotations = map[string]string{"touched": "yes"}
					m.api.putLocked("pods", pod)
				}
			}
		})
		m.setImage("app:2")
		time.Sleep(time.Minute)
		m.fewer(nodes*doubling(ofPod, time.Minute), begin, "DELETE", "pods")
		time.Sleep(5 * time.Minute)
		m.holds("", on())
	})
}

func TestModelChangesOfPodsDoNotBypassTheBackoff(t *testing.T) {
	for _, strategy := range []string{rolling, "OTA"} {
		t.Run(strategy, func(t *testing.T) {
			simulate(t, func(t *testing.T) {
				const nodes = 20
				m := startModel(t, nodes, 1, strategy)
				time.Sleep(time.Minute)
				m.breakDown(func(verb, _ string) bool { return verb != "GET" })
				begin := time.Now()
				m.setImage("app:2")
				for range 400 { // a pod changes every 50 ms
					m.api.with(func() {
						pod := m.podsLocked()["n1"][0].DeepCopy()
						pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{
							Waiting: &corev1.ContainerStateWaiting{Reason: fmt.Sprint("R", pod.ResourceVersion)},
						}}}
						m.api.putLocked("pods", pod)
					})
					time.Sleep(50 * time.Millisecond)
				}
				m.fewer(doubling(ofDaemonSet, time.Since(begin)), begin, "PATCH", "daemonsets/status")
				m.fewer(nodes*doubling(ofPod, time.Since(begin)), begin, "PATCH", "pods/status")
				m.fewer(doubling(ofPod, time.Since(begin)), begin, "DELETE", "pods")
				m.heal()
				time.Sleep(5 * time.Minute)
				if strategy == rolling {
					m.holds("", on())
				}
			})
		})
	}
}

func TestModelWhoeverChangesTheDaemonSetDoesNotWaitForTheBackoff(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := startModel(t, 3, 1, rolling)
		time.Sleep(time.Minute)
		m.breakDown(func(verb, _ string) bool { return verb != "GET" })
		m.setImage("app:2")
		time.Sleep(10 * time.Minute)
		begin := time.Now()
		for m.api.count(begin, "PATCH", "daemonsets/status") == 0 { // the next try is in a minute
			time.Sleep(tick)
		}
		m.heal()
		begin = time.Now()
		m.setImage("app:3")
		time.Sleep(2 * time.Second)
		if m.api.count(begin, "PATCH", "daemonsets/status") == 0 {
			t.Error("the DaemonSet was changed, and nobody looked at it")
		}
		time.Sleep(6 * time.Minute)
		m.holds("", on())
	})
}

// A wait that was cut short by a change, and ended by a success, does not come back.
func TestModelASuccessEndsTheBackoff(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := startModel(t, 3, 1, rolling)
		m.breakDown(func(verb, resource string) bool { return verb == "PATCH" && resource == "daemonsets/status" })
		m.setImage("app:2")
		time.Sleep(10 * time.Minute)
		m.heal()
		m.setImage("app:3")
		time.Sleep(20 * time.Second)
		m.holds("", on())
	})
}

// What is known of a DaemonSet is not known of the next one of its name.
func TestModelADaemonSetThatIsMadeAgain(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := startModel(t, 3, 1, rolling)
		m.refuse("DELETE pods", refusals[0], "n1", "n2", "n3")
		m.setImage("broken:1")
		time.Sleep(30 * time.Minute)
		m.holds("not today", on("n1", "n2", "n3"))
		m.recreate("broken:1")
		begin := time.Now()
		m.heal()
		time.Sleep(40 * time.Second)
		m.holds("", on())
		if got := m.api.count(begin, "GET", "controllerrevisions"); got < 1 {
			t.Error("the revision of the new DaemonSet, whose generation is that of the old one, is taken for confirmed")
		}
		if got := m.told("RolloutStarted"); len(got) != 1 {
			t.Errorf("the start of its rollout is told %d times: %q", len(got), got)
		}
		m.rollsOut("app:2")
	})
}

// A pod that Kubernetes lets run under a taint that came later is left alone and named, until the
// taint is gone.
func TestModelARolloutIsCompleteWithoutPodsHeldByPlacement(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := startModel(t, 3, 1, rolling)
		taint := func(taints ...corev1.Taint) {
			m.api.with(func() {
				node := m.api.objects["nodes"]["/n2"].DeepCopyObject().(*corev1.Node)
				node.Spec.Taints = taints
				m.api.putLocked("nodes", node)
			})
		}
		taint(corev1.Taint{Key: "dedicated", Value: "line3", Effect: corev1.TaintEffectNoSchedule})
		m.setImage("app:2")
		time.Sleep(2 * time.Minute)
		const held = "controllerrevision app-2: complete, 1 pod held by placement (node n2 has the taint dedicated=line3:NoSchedule, " +
			"which the new version does not tolerate)"
		complete := m.condition(api.CompleteCondition)
		if complete.Status != corev1.ConditionTrue || complete.Reason != rollout.ReasonHeldByPlacement || complete.Message != held {
			t.Errorf("RolloutComplete is %s because of %s: %s", complete.Status, complete.Reason, complete.Message)
		}
		m.stop()
		m.start() // which reports nothing twice
		time.Sleep(2 * time.Minute)
		if got := m.told("RolloutComplete"); len(got) != 1 || !strings.HasPrefix(got[0], held+", done in ") {
			t.Errorf("the Events are %q", got)
		}
		taint()
		time.Sleep(time.Minute)
		m.holds("", on())
		if got := m.told("RolloutComplete"); len(got) != 2 || !strings.HasPrefix(got[1], "controllerrevision app-2: 3 of 3 nodes updated, done in ") {
			t.Errorf("the Events are %q", got)
		}
	})
}

// The watches of DaemonSets and revisions are late, and the one of pods is not: the pods of
// a template that the controller has not heard of are not taken for old ones.
func TestModelPodsOfATemplateThatIsNotKnownYetAreLeftAlone(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := startModel(t, 4, 4, rolling)
		time.Sleep(time.Minute)
		m.setImage("app:2")
		time.Sleep(time.Second) // its pods are being deleted
		begin := time.Now()
		m.api.with(func() {
			m.api.faults.late = map[string]time.Duration{"daemonsets": latest, "controllerrevisions": latest}
		})
		m.setImage("huge:3")
		time.Sleep(latest / 2)
		m.fewer(0, begin, "DELETE", "pods")
		time.Sleep(2 * latest)
		m.api.with(func() { m.api.faults.late = nil })
		m.rollsOut("app:4")
	})
}
