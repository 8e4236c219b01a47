package rollout_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// What a template asks for, of the 4 CPUs that a node has.
const (
	modest = "10m"
	huge   = "100"
)

var podResource = schema.GroupResource{Resource: "pods"}

// refusals are answers to requests to delete a pod that leave the pod as it is.
var refusals = []struct {
	words  string
	answer func(pod string) *apierrors.StatusError
}{
	{"403", func(pod string) *apierrors.StatusError {
		return apierrors.NewForbidden(podResource, pod, errors.New("not today"))
	}},
	{"409", func(pod string) *apierrors.StatusError {
		return apierrors.NewConflict(podResource, pod, errors.New("in use"))
	}},
	{"500", func(string) *apierrors.StatusError {
		return apierrors.NewInternalError(errors.New(`failed calling webhook "guard": EOF`))
	}},
	{"503", func(string) *apierrors.StatusError { return apierrors.NewServiceUnavailable("etcd has no leader") }},
}

// refuse has requests to delete the pods that are on some nodes now answered so, also when
// they are sent by another controller.
func (x *scene) refuse() {
	r, all := refusals[x.random.IntN(len(refusals))], x.random.IntN(4) == 0
	pods := map[string]bool{}
	for node, pod := range x.Pods() {
		if all || node == "n1" || node == "n2" {
			pods[pod.Name] = true
		}
	}
	x.note("%s is answered to the deletion of %d pods", r.words, len(pods))
	x.answer = func(namespace, pod string) *apierrors.StatusError {
		if namespace == x.Namespace && pods[pod] {
			return r.answer(pod)
		}
		return nil
	}
	x.controller.Refuse(x.answer)
}

func (x *scene) allow() {
	x.note("pods may be deleted")
	x.answer = nil
	x.controller.Refuse(nil)
}

// admit has admission let new pods in, or refuse all of them.
func (x *scene) admit(pods bool) {
	if x.shut == !pods {
		return
	}
	x.note("admission lets new pods in: %t", pods)
	label := "null"
	if !pods {
		label = `"restricted"`
	}
	if pods {
		x.guard.Refusing(false)
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":%s}}}`, label)
	_, err := s.Admin.CoreV1().Namespaces().Patch(context.WithoutCancel(x.t.Context()), x.Namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	x.must(err)
	if !pods {
		x.guard.Refusing(true)
	}
	x.shut = !pods
}

// back waits until every node has a pod again, and says how long that took: Kubernetes' own controller may wait for minutes.
func (x *scene) back() {
	begin := time.Now()
	poll.Eventually(x.t, "each node has a pod", func() bool { return len(x.Pods()) == nodes })
	if took := time.Since(begin); took > 5*time.Second {
		x.t.Logf("each node had a pod %v after the faults had stopped", took)
	}
}

// maxHold is for how long a hold counts.
const maxHold = 6 * time.Second

// clocks are by how much that of a node may be off.
var clocks = []time.Duration{0, 10 * 365 * 24 * time.Hour, -10 * 365 * 24 * time.Hour}

// hold has the owner of a node hold its pod, once.
func (x *scene) hold(node string) {
	pod := x.Pods()[node]
	if pod == nil || x.held[pod.UID] {
		return
	}
	length, off := time.Duration(3+x.random.IntN(20))*time.Second, clocks[x.random.IntN(len(clocks))]
	x.note("the pod on %s is held for %v, by a clock that is off by %v", node, length, off)
	x.held[pod.UID] = true
	until := time.Now().Add(min(length, maxHold))
	x.Hold(pod, length, off)
	x.guard.Held(pod.UID, until)
}

// rollBack has the owner of a node go back to any revision of the history. It is refused unless that is an
// earlier one, and differs by images alone.
func (x *scene) rollBack(node string) {
	pod := x.Pods()[node]
	list, err := s.Admin.AppsV1().ControllerRevisions(x.Namespace).List(x.t.Context(), metav1.ListOptions{})
	x.must(err)
	if pod == nil || len(list.Items) == 0 {
		return
	}
	hash := func(r appsv1.ControllerRevision) string { return r.Labels[appsv1.ControllerRevisionHashLabelKey] }
	newest := slices.MaxFunc(list.Items, func(a, b appsv1.ControllerRevision) int { return cmp.Compare(a.Revision, b.Revision) })
	wish := list.Items[x.random.IntN(len(list.Items))]
	x.note("the owner of %s goes back to revision %d", node, wish.Revision)
	x.RollBack(pod, hash(wish), hash(newest))
}

// upgrade has all owners who went back take the newest revision again.
func (x *scene) upgrade() {
	for _, pod := range x.Pods() {
		if _, ok := pod.Annotations[api.RollbackAnnotation]; ok {
			x.RollBack(pod, "", "")
		}
	}
}

// request changes the template: its image, and what it asks for.
func (x *scene) request(cpus, image string) {
	x.Patch(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":%q,"resources":{"requests":{"cpu":%q}}}]}}}}`, image, cpus)
}

// unschedulable makes the template one that no node has room for.
func (x *scene) unschedulable() {
	x.images++
	image := fmt.Sprintf("app:%d", x.images)
	x.note("the template has %s, for which no node has room", image)
	x.request(huge, image)
}

// remake deletes the DaemonSet and makes it again, with its pods or without them.
func (x *scene) remake() {
	orphan := x.random.IntN(2) == 0
	x.note("the DaemonSet is made again; its pods stay: %t", orphan)
	faults := func() {
		for i := range nodes {
			x.guard.Fault(fmt.Sprintf("n%d", i+1))
		}
	}
	faults()
	x.Remake(orphan)
	faults()
}

// clear lets the rollout come to an end.
func (x *scene) clear() {
	x.allow()
	x.admit(true)
	if image := x.Get().Spec.Template.Spec.Containers[0]; image.Resources.Requests.Cpu().String() == huge {
		x.images++
		x.request(modest, fmt.Sprintf("app:%d", x.images))
	}
}
