package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/view"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

const started = "Start updating pod shop/web-1"

// settled is how a pod ends that stays Ready.
const settled = "s,\nand has stayed so for 60ms\n"

func deleting(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: start} }

// waits makes a pod one whose container waits.
func waits(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodPending
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
	}
}

// old is the pod that is upgraded in all tests.
func old(change ...func(*corev1.Pod)) corev1.Pod {
	return pod("shop", "web-1", oldRevision, append(change, needs(corev1.ConditionTrue, newRevision))...)
}

func TestAnUpgradeIsWaitedFor(t *testing.T) {
	other := pod("shop", "db-1", newRevision)
	other.OwnerReferences[0].UID = "another DaemonSet"
	elsewhere := pod("elsewhere", "web-9", newRevision)
	h := newFakeHub(t).on("POST", upgradeOf, answersWith(200, started)).on("GET", "/pods",
		podList(other, old(), elsewhere), // before the request
		podList(old(), other, elsewhere), // behind it: nothing has happened yet
		podList(other, old(deleting), elsewhere),
		podList(other, elsewhere),
		podList(other, elsewhere, pod("shop", "web-0", newRevision, deleting)), // somebody deletes that one, too
		breaksOff(`{"items":[`),
		podList(other, elsewhere, pod("shop", "web-2", newRevision, waits("ContainerCreating", ""))),
		podList(other, elsewhere, pod("shop", "web-2", newRevision)),
	)
	got := h.edgehubctl(t, "upgrade", "--no-pull", "shop/web-1", "--wait")
	if !strings.HasSuffix(got.out, settled) {
		t.Errorf("stdout: %q, want %q at its end", got.out, settled)
	}
	got.has(t, cli.Done, started+"\nPod shop/web-2 of revision 7c9b is Ready, after 0.", strings.ReplaceAll(`waiting for pod shop/web-1 to begin to end
waiting for pod shop/web-1 to end
waiting for a pod in place of shop/web-1: the cloud makes it
the hub does not answer on ADDRESS: its answer broke off: unexpected EOF; the upgrade goes on all the same
waiting for pod shop/web-2 to be Ready: container web waits: ContainerCreating
waiting for pod shop/web-2 to stay Ready for 60ms
`, "ADDRESS", h.address))
}

// The next pod of a StatefulSet has the same name, and others of the StatefulSet may be on this node.
// What the hub warns of is printed with its answer.
func TestAnUpgradeWithAWarning(t *testing.T) {
	h := newFakeHub(t).on("POST", upgradeOf, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Warning", `299 - "it is not known whether \"w\" lets it in"`)
		answersWith(200, started)(w, nil)
	})
	h.edgehubctl(t, "upgrade", "--no-pull", "shop/web-1").is(t, cli.Done, started+"\nWarning: it is not known whether \"w\" lets it in\n", "")
}

func TestAnUpgradeOfAStatefulSetsPodIsWaitedFor(t *testing.T) {
	stateful := func(uid types.UID) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.UID, p.OwnerReferences[0].Kind = uid, "StatefulSet" }
	}
	other := pod("shop", "web-2", newRevision, stateful("other"))
	h := newFakeHub(t).on("POST", upgradeOf, answersWith(200, started)).on("GET", "/pods",
		podList(old(stateful("old")), other),
		podList(old(stateful("old"), deleting), other),
		podList(other),
		podList(other, pod("shop", "web-1", newRevision, stateful("new"), waits("ErrImagePull", ""))),
	)
	h.edgehubctl(t, "upgrade", "--no-pull", "shop/web-1", "--wait").is(t, cli.Broken, started+"\n", `waiting for pod shop/web-1 to end
waiting for a pod in place of shop/web-1: the cloud makes it, perhaps on another node
error: pod shop/web-1 of revision 7c9b does not run: container web: ErrImagePull. To find out more: kubectl describe pod web-1 -n shop. `+
		"kubelet goes on trying; to go back on this node, edgehubctl rollback shop/web-1; on all nodes, ask for a rollback (kubectl rollout undo statefulset/web -n shop), and upgrade once more when edgehubctl pods shows that the pod needs it\n")
	h.on("GET", "/pods", podList(old(stateful("old"))), podList(other), podList(other, pod("shop", "web-1", newRevision, stateful("new"))))
	h.edgehubctl(t, "upgrade", "--no-pull", "shop/web-1", "--wait").has(t, cli.Done, started+"\nPod shop/web-1 of revision 7c9b is Ready",
		"waiting for a pod in place of shop/web-1: the cloud makes it, perhaps on another node\nwaiting for pod shop/web-1 to stay Ready for 60ms\n")
}

func TestAnUpgradeAsJSON(t *testing.T) {
	h := newFakeHub(t).on("POST", upgradeOf, answersWith(200, started)).on("GET", "/pods", podList(old()), podList(pod("shop", "web-2", newRevision)))
	got := h.edgehubctl(t, "upgrade", "--no-pull", "shop/web-1", "--wait", "-o", "json")
	var u upgraded
	if err := json.Unmarshal([]byte(got.out), &u); err != nil {
		t.Fatalf("%v: %s", err, got.out)
	}
	if u.Seconds < 0 || u.Seconds > 20 {
		t.Errorf("it took %v s", u.Seconds)
	}
	if u.Seconds = 0; u.StableSeconds != 0.06 {
		t.Errorf("it was stable for %v s", u.StableSeconds)
	}
	u.StableSeconds = 0
	if want := (upgraded{Namespace: "shop", Pod: "web-1", Successor: "web-2", Revision: newRevision}); u != want {
		t.Errorf("got %+v, want %+v", u, want)
	}
}

func TestASuccessorOfAnotherRevision(t *testing.T) {
	h := newFakeHub(t).on("POST", upgradeOf, answersWith(200, started)).on("GET", "/pods", podList(old()), podList(pod("shop", "web-2", "8aaa")))
	h.edgehubctl(t, "upgrade", "--no-pull", "shop/web-1", "--wait").is(t, cli.Failed, started+"\n",
		"waiting for pod shop/web-2 to stay Ready for 60ms\nerror: pod shop/web-2 is Ready, but of revision 8aaa, not of 7c9b: its app was changed meanwhile\n")
}

func TestAPodThatWasNotKnownBefore(t *testing.T) {
	h := newFakeHub(t).on("POST", upgradeOf, answersWith(200, started)).on("GET", "/pods", podList())
	h.edgehubctl(t, "upgrade", "--no-pull", "shop/web-1", "--wait").has(t, cli.Failed, started, "its successor cannot be told from others")
}

func TestAnUpgradeIsNotWaitedForLongerThanTheTimeout(t *testing.T) {
	pulling := pod("shop", "web-2", newRevision, waits("ContainerCreating", "mounting\nvolumes"))
	tests := map[string]struct {
		answer http.HandlerFunc
		err    string
	}{
		"while it starts": {podList(pulling), `waiting for pod shop/web-2 to be Ready: container web waits: ContainerCreating, mounting volumes
error: not done after 300ms: waiting for pod shop/web-2 to be Ready: container web waits: ContainerCreating, mounting volumes. The upgrade goes on; edgehubctl pods shows the pod
`},
		"while the hub is gone": {answersWith(502, "gone"), `gone; the upgrade goes on all the same
error: not done after 300ms: waiting for the hub. The upgrade goes on; edgehubctl pods shows the pod
`},
		"while the hub says nothing": {hangs(""), `error: not done after 300ms: waiting for the hub. The upgrade goes on; edgehubctl pods shows the pod
`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFakeHub(t).on("POST", upgradeOf, answersWith(200, started)).on("GET", "/pods", podList(old()), tt.answer)
			h.edgehubctl(t, "upgrade", "--no-pull", "shop/web-1", "--wait", "--timeout=300ms").is(t, cli.Undone, started+"\n", tt.err)
		})
	}
}

func TestWhatKeepsAPodFromBeingReady(t *testing.T) {
	unready := func(change func(*corev1.Pod)) corev1.Pod {
		return pod("shop", "web-2", newRevision, func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodPending
			p.Status.Conditions[0].Status = corev1.ConditionFalse
			p.Status.ContainerStatuses = nil
			change(p)
		})
	}
	container := func(name string, ready bool, state corev1.ContainerState) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, Ready: ready, State: state}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	tests := map[string]struct {
		pod  corev1.Pod
		want string
	}{
		"nobody has begun": {unready(func(*corev1.Pod) {}), "the kubelet has not begun with it"},
		"no room for it": {unready(func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes"})
		}), "Unschedulable, 0/1 nodes"},
		"an init container fails": {unready(func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{container("setup", false, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}})}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{container("web", false, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}})}
		}), "container setup ended with exit code 3; container web waits: PodInitializing"},
		"one that is done is in nobody's way": {unready(func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{container("setup", true, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{container("web", false, running), container("log", true, running)}
		}), "container web runs and is not ready"},
		"all are ready": {unready(func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{container("web", true, running)}
			p.Status.Conditions[0].Message = "readiness gate closed"
		}), "readiness gate closed"},
		"nothing is said": {unready(func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{container("web", true, running)}
		}), "its phase is Pending"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := &view.Replacement{Old: types.NamespacedName{Namespace: "shop", Name: "web-1"}, UID: "uid-web-1", Owner: "ds", Target: newRevision}
			done, waiting, err := s.Check([]*corev1.Pod{&tt.pod}, start, start)
			if want := "for pod shop/web-2 to be Ready: " + tt.want; done || err != nil || waiting != want {
				t.Errorf("got %t, %v and %q, want %q", done, err, waiting, want)
			}
		})
	}
}
