package controller_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/rolloutenv"
)

const strategyKey = "apps.openyurt.io/update-strategy"

var many = resource.MustParse("100")

const name = rolloutenv.Name

// fixture is a DaemonSet in a namespace of its own.
type fixture struct {
	*rolloutenv.DaemonSet
	t *testing.T
}

// newDaemonSet makes a DaemonSet and waits for its pods.
func newDaemonSet(t *testing.T, annotations map[string]string) *fixture {
	t.Helper()
	ds := env.Create(t, annotations, func(ds *appsv1.DaemonSet) {
		spec := &ds.Spec.Template.Spec
		spec.InitContainers = []corev1.Container{{Name: "init", Image: "init:1"}}
		spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
		spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} // nobody marks the nodes as ready
	})
	f := &fixture{DaemonSet: ds, t: t}
	poll.Eventually(t, "the DaemonSet has a pod on each node", func() bool { return len(f.pods()) == nodes })
	return f
}

// patchStatus takes a strategic merge patch of a pod's status, as a kubelet sends.
func (f *fixture) patchStatus(pod, patch string) {
	f.t.Helper()
	_, err := env.Admin.CoreV1().Pods(f.Namespace).Patch(f.t.Context(), pod, types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{}, "status")
	if err != nil {
		f.t.Fatal(err)
	}
}

// pods returns those of the DaemonSet that are bound and not on their way out, by name.
func (f *fixture) pods() map[string]*corev1.Pod {
	f.t.Helper()
	list, err := env.Admin.CoreV1().Pods(f.Namespace).List(f.t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		f.t.Fatal(err)
	}
	out := map[string]*corev1.Pod{}
	for i := range list.Items {
		if pod := &list.Items[i]; pod.DeletionTimestamp.IsZero() && pod.Spec.NodeName != "" {
			out[pod.Name] = pod
		}
	}
	return out
}

// names are those of the pods, sorted.
func (f *fixture) names() []string { return slices.Sorted(maps.Keys(f.pods())) }

// uids show whether pods were restarted.
func (f *fixture) uids() map[types.UID]bool {
	out := map[types.UID]bool{}
	for _, pod := range f.pods() {
		out[pod.UID] = true
	}
	return out
}

// replace deletes a pod the way a node's owner does, and waits for the next.
func (f *fixture) replace(pod string) {
	f.t.Helper()
	now := int64(0)
	if err := env.Admin.CoreV1().Pods(f.Namespace).Delete(f.t.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		f.t.Fatal(err)
	}
	poll.Eventually(f.t, "the deleted pod has a successor", func() bool {
		pods := f.pods()
		return pods[pod] == nil && len(pods) == nodes
	})
}

// describe returns the marks on a pod in a word or two.
func describe(pod *corev1.Pod) string {
	c := api.Condition(pod, api.NeedCondition)
	_, annotated := pod.Annotations[api.TargetAnnotation]
	if c == nil {
		return fmt.Sprintf("unmarked, annotated=%t", annotated)
	}
	return fmt.Sprintf("%s/%s, annotated=%t", c.Status, c.Reason, annotated)
}

const (
	upToDate = "False/UpToDate, annotated=false"
	needsOne = "True/UpgradeAvailable, annotated=true"
	unmarked = "unmarked, annotated=false"
)

// marks describes how many pods there are of each kind.
func (f *fixture) marks() map[string]int {
	out := map[string]int{}
	for _, pod := range f.pods() {
		out[describe(pod)]++
	}
	return out
}

// await waits until the pods are marked so.
func (f *fixture) await(want map[string]int) {
	f.t.Helper()
	var got map[string]int
	defer func() {
		if f.t.Failed() {
			f.t.Logf("the pods are %v, want %v", got, want)
		}
	}()
	poll.Eventually(f.t, fmt.Sprintf("the pods are %v", want), func() bool {
		got = f.marks()
		return maps.Equal(got, want)
	})
}
