package rollout_test

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	if image := x.Get().Spec.Template.Spec.Containers[0]; image.Resources.Requests.Cpu().String() == huge {
		x.images++
		x.request(modest, fmt.Sprintf("app:%d", x.images))
	}
}
