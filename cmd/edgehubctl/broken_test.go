package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/view"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

// crashes makes a pod one whose container has ended so many times.
func crashes(restarts int32, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		waits("CrashLoopBackOff", "back-off 10s restarting failed container=web")(p)
		s := &p.Status.ContainerStatuses[0]
		s.RestartCount = restarts
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: 3, Reason: "Error", Message: message, ContainerID: "containerd://0123456789abcdef0123456789abcdef",
		}
	}
}

// endedAgain makes a pod one whose container has ended after so many restarts, and that
// kubelet has not looked at since.
func endedAgain(restarts int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		crashes(restarts, "")(p)
		s := &p.Status.ContainerStatuses[0]
		s.State = s.LastTerminationState
	}
}

func evicted(p *corev1.Pod) {
	p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory."}
}

func restarted(times int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = times }
}

// An upgrade to a version that does not run was once called Ready, when somebody looked
// between two crashes.
func TestAnUpgradeToAVersionThatFails(t *testing.T) {
	const goBack = ". kubelet goes on trying; to go back on this node, edgehubctl rollback shop/web-2; on all nodes, ask for a rollback (kubectl rollout undo daemonset/web -n shop), and upgrade once more when edgehubctl pods shows that the pod needs it\n"
	const describe = ". To find out more: kubectl describe pod web-2 -n shop"
	const logs = ". Its log: kubectl logs web-2 -n shop -c web --previous, or on this node sudo edgehubctl logs --previous shop/web-2 -c web"
	const lastLogs = ". Its log: kubectl logs web-2 -n shop -c web, or on this node sudo edgehubctl logs --previous shop/web-2 -c web"
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"it crashes":               {crashes(2, ""), "container web: CrashLoopBackOff, restarts: 2, last exit code 3" + logs},
		"it has just crashed":      {endedAgain(2), "container web: CrashLoopBackOff, restarts: 2, last exit code 3" + lastLogs},
		"it says why it crashes":   {crashes(1, "panic:\x1b[2J\n no disk"), "container web: CrashLoopBackOff, restarts: 1, last exit code 3, panic: [2J no disk" + logs},
		"its image is not there":   {waits("ErrImagePull", "manifest unknown\n"), "container web: ErrImagePull: manifest unknown" + describe},
		"its image is waited for":  {waits("ImagePullBackOff", ""), "container web: ImagePullBackOff" + describe},
		"its Secret is not there":  {waits("CreateContainerConfigError", `secret "key" not found`), `container web: CreateContainerConfigError: secret "key" not found` + describe},
		"a reason of tomorrow":     {waits("OutOfQubits", ""), "container web: OutOfQubits" + describe},
		"its init container fails": {inInit(crashes(4, "")), "container web: CrashLoopBackOff, restarts: 4, last exit code 3" + logs},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newFakeHub(t).on("POST", upgradeOf, answersWith(200, started)).on("GET", "/pods",
				podList(old()), podList(pod("shop", "web-2", newRevision)), podList(pod("shop", "web-2", newRevision, tt.change)))
			h.edgehubctl(t, "upgrade", "--no-pull", "shop/web-1", "--wait").is(t, cli.Broken, started+"\n",
				"waiting for pod shop/web-2 to stay Ready for 60ms\nerror: pod shop/web-2 of revision 7c9b does not run: "+tt.want+goBack)
		})
	}
}

// kubelet never tries a pod again that has failed as a whole; the workload's controller makes another one.
func TestAPodThatKubeletRejectsIsWaitedOut(t *testing.T) {
	rejected := func(reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: "Pod was rejected: no room"}
		}
	}
	endedBy := func(p *corev1.Pod) {
		evicted(p)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, ContainerID: "containerd://1"},
		}}}
	}
	const another = "waiting for another pod in place of shop/web-1: the cloud makes it"
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		why    string
	}{
		"no device": {rejected("UnexpectedAdmissionError"), ", after kubelet rejected pod shop/web-2: UnexpectedAdmissionError: Pod was rejected: no room"},
		"no CPU":    {rejected("OutOfcpu"), ", after kubelet rejected pod shop/web-2: OutOfcpu: Pod was rejected: no room"},
		"evicted":   {endedBy, ", after pod shop/web-2 has failed: container web: Evicted: The node was low on resource: memory., last exit code 137"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := pod("shop", "web-2", newRevision, tt.change)
			first.CreationTimestamp = metav1.NewTime(start)
			starting, second := pod("shop", "web-3", newRevision, waits("ContainerCreating", "")), pod("shop", "web-3", newRevision)
			starting.CreationTimestamp, second.CreationTimestamp = metav1.NewTime(start.Add(time.Second)), metav1.NewTime(start.Add(time.Second))
			h := newFakeHub(t).on("POST", upgradeOf, answersWith(200, started)).on("GET", "/pods",
				podList(old()), podList(first), podList(), podList(first, starting), podList(second))
			h.edgehubctl(t, "upgrade", "--no-pull", "shop/web-1", "--wait").has(t, cli.Done, started+"\nPod shop/web-3 of revision 7c9b is Ready",
				another+tt.why+"\nwaiting for a pod in place of shop/web-1: the cloud makes it"+tt.why+
					"\nwaiting for pod shop/web-3 to be Ready: container web waits: ContainerCreating"+tt.why+
					"\nwaiting for pod shop/web-3 to stay Ready for 60ms\n")

			h = newFakeHub(t).on("POST", upgradeOf, answersWith(200, started)).on("GET", "/pods", podList(old()), podList(first))
			h.edgehubctl(t, "upgrade", "--no-pull", "shop/web-1", "--wait", "--timeout=300ms").is(t, cli.Undone, started+"\n", another+tt.why+
				"\nerror: not done after 300ms: "+another+tt.why+". The upgrade goes on; edgehubctl pods shows the pod. kubelet does not try that pod again: "+
				"the DaemonSet makes another one, after up to 15 minutes. Mend what the reason names (journalctl -u kubelet has more), or go back on all nodes: "+
				"kubectl rollout undo daemonset/web -n shop\n")
		})
	}
}

// inInit moves the containers' statuses to init containers.
func inInit(change func(*corev1.Pod)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		change(p)
		p.Status.InitContainerStatuses, p.Status.ContainerStatuses = p.Status.ContainerStatuses, nil
	}
}

// checkOnce plays one look at a pod, at a second since the start.
func checkOnce(t *testing.T, s *view.Replacement, second float64, p corev1.Pod) bool {
	t.Helper()
	at := start.Add(time.Duration(second * float64(time.Second)))
	done, _, err := s.Check([]*corev1.Pod{&p}, at, at)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func TestASuccessorHasToStayReady(t *testing.T) {
	readyAgain := func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(start) }
	unready := func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }
	another := func(p *corev1.Pod) { p.UID = "another" }
	tests := map[string]struct {
		between []func(*corev1.Pod)
		after   []func(*corev1.Pod)
		want    bool // whether it is stable ten seconds after it was first Ready
	}{
		"it stays":                                  {nil, nil, true},
		"it is not Ready in between":                {[]func(*corev1.Pod){unready}, nil, false},
		"nobody looked while it was not Ready":      {nil, []func(*corev1.Pod){readyAgain}, false},
		"it was restarted":                          {nil, []func(*corev1.Pod){restarted(1)}, false},
		"it was restarted before, too":              {[]func(*corev1.Pod){restarted(1)}, []func(*corev1.Pod){restarted(2)}, false},
		"another one came in its place, Ready, too": {nil, []func(*corev1.Pod){another}, false},
		"its container is not there in between":     {[]func(*corev1.Pod){unready, waits("ContainerCreating", "")}, nil, false},
		"a controller's word changes nothing":       {nil, []func(*corev1.Pod){needs(corev1.ConditionFalse, newRevision)}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := &view.Replacement{Old: types.NamespacedName{Namespace: "shop", Name: "web-1"}, UID: "uid-web-1", Owner: "ds", Target: newRevision, Settle: 10 * time.Second}
			for i, change := range [][]func(*corev1.Pod){nil, tt.between} {
				if checkOnce(t, s, float64(i*5), pod("shop", "web-2", newRevision, change...)) {
					t.Fatalf("it is called stable after %d s", i*5)
				}
			}
			if got := checkOnce(t, s, 10, pod("shop", "web-2", newRevision, tt.after...)); got != tt.want {
				t.Errorf("stable after 10 s: %t, want %t", got, tt.want)
			}
			if !checkOnce(t, s, 20, pod("shop", "web-2", newRevision, tt.after...)) {
				t.Error("it is not stable after 10 s more")
			}
		})
	}
}

// A pod that was Ready when the hub began to answer may have been so for a moment only.
func TestTheTimeOfTheQuestionCounts(t *testing.T) {
	s := &view.Replacement{UID: "uid-web-1", Old: types.NamespacedName{Namespace: "shop", Name: "web-1"}, Owner: "ds", Settle: 10 * time.Second}
	p := pod("shop", "web-2", newRevision)
	for _, look := range []struct {
		asked, answered int
		want            bool
	}{{0, 8, false}, {9, 30, false}, {17, 40, false}, {18, 18, true}} {
		at := func(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }
		if done, _, _ := s.Check([]*corev1.Pod{&p}, at(look.asked), at(look.answered)); done != look.want {
			t.Errorf("asked after %d s and answered after %d s: %t", look.asked, look.answered, done)
		}
	}
}

func TestHowLongASuccessorHasToStayReady(t *testing.T) {
	target := func(revision string, seconds int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			out := api.NewTarget(revision, &corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:v2"}}})
			out.MinReadySeconds = seconds
			p.Annotations = map[string]string{api.TargetAnnotation: out.Encode()}
		}
	}
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   time.Duration
	}{
		"nobody has said":                      {func(*corev1.Pod) {}, 10 * time.Second},
		"the DaemonSet says":                   {target(newRevision, 42), 42 * time.Second},
		"the DaemonSet says less than usual":   {target(newRevision, 1), time.Second},
		"the DaemonSet has no minReadySeconds": {target(newRevision, 0), 10 * time.Second},
		"it is of another revision":            {target("aaaa", 42), 10 * time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := old(tt.change)
			s, err := view.NewReplacement([]*corev1.Pod{&p}, types.NamespacedName{Namespace: "shop", Name: "web-1"}, usualTiming().settle)
			if err != nil || s.Settle != tt.want {
				t.Errorf("got %+v, %v, want %v", s, err, tt.want)
			}
		})
	}
}

func TestAnEvictedPodIsNotTakenForTheNewOne(t *testing.T) {
	first := pod("shop", "web-9", newRevision, evicted)
	second := pod("shop", "web-3", newRevision)
	first.CreationTimestamp, second.CreationTimestamp = metav1.NewTime(start), metav1.NewTime(start.Add(time.Second))
	for _, pods := range [][]*corev1.Pod{{&first, &second}, {&second, &first}} {
		s := &view.Replacement{Old: types.NamespacedName{Namespace: "shop", Name: "web-1"}, Owner: "ds", Settle: time.Second}
		if _, waiting, err := s.Check(pods, start, start); err != nil || !strings.Contains(waiting, "web-3 to stay Ready") {
			t.Errorf("got %q, %v", waiting, err)
		}
	}
}
