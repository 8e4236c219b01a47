package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/upgrade"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

const (
	strategyKey    = "apps.openyurt.io/update-strategy"
	oldStrategyKey = "apps.openyurt.io/upgrade-strategy"
)

var many = resource.MustParse("100")

// patience is far beyond what anything here takes; a test that waits this long
// has failed.
const patience = 2 * time.Minute

// eventually polls until done holds.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	poll.Until(t, patience, what, done)
}

// fixture is a DaemonSet in a namespace of its own.
type fixture struct {
	t         *testing.T
	namespace string
}

const name = "web"

// newDaemonSet makes a DaemonSet with the update strategy OnDelete and waits for
// its pods. The cleanup takes it away.
func newDaemonSet(t *testing.T, annotations map[string]string) *fixture {
	t.Helper()
	ns, err := env.admin.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, namespace: ns.Name}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	ds.Spec.Template.Labels = ds.Spec.Selector.MatchLabels
	ds.Spec.Template.Spec = corev1.PodSpec{
		Containers:       []corev1.Container{{Name: "app", Image: "app:1"}},
		InitContainers:   []corev1.Container{{Name: "init", Image: "init:1"}},
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}},
		Tolerations:      []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, // nobody says that the nodes are ready
	}
	if _, err := env.admin.AppsV1().DaemonSets(f.namespace).Create(t.Context(), ds, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.remove)
	eventually(t, "the DaemonSet has a pod on each node", func() bool { return len(f.pods()) == nodes })
	return f
}

// remove works after the test's context has ended, too.
func (f *fixture) remove() {
	ctx := context.Background()
	orphan := metav1.DeletePropagationBackground
	err := env.admin.AppsV1().DaemonSets(f.namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &orphan})
	if err != nil && !strings.Contains(err.Error(), "not found") {
		f.t.Error(err)
	}
	if err := env.admin.CoreV1().Namespaces().Delete(ctx, f.namespace, metav1.DeleteOptions{}); err != nil {
		f.t.Error(err)
	}
}

func (f *fixture) get() *appsv1.DaemonSet {
	f.t.Helper()
	ds, err := env.admin.AppsV1().DaemonSets(f.namespace).Get(f.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return ds
}

// patch takes a JSON merge patch of the DaemonSet.
func (f *fixture) patch(format string, args ...any) {
	f.t.Helper()
	_, err := env.admin.AppsV1().DaemonSets(f.namespace).Patch(f.t.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, format, args...), metav1.PatchOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
}

// patchStatus takes a strategic merge patch of a pod's status, as a kubelet sends.
func (f *fixture) patchStatus(pod, patch string) {
	f.t.Helper()
	_, err := env.admin.CoreV1().Pods(f.namespace).Patch(f.t.Context(), pod, types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{}, "status")
	if err != nil {
		f.t.Fatal(err)
	}
}

// annotate sets the annotation, or removes it when value is nil.
func (f *fixture) annotate(key string, value any) {
	f.t.Helper()
	v, err := json.Marshal(value)
	if err != nil {
		f.t.Fatal(err)
	}
	f.patch(`{"metadata":{"annotations":{%q:%s}}}`, key, v)
}

// setImage changes the pod template.
func (f *fixture) setImage(image string) {
	f.t.Helper()
	f.kubectl("set", "image", "daemonset/"+name, "app="+image)
}

func (f *fixture) kubectl(args ...string) string {
	f.t.Helper()
	out, err := env.cluster.Kubectl(f.t.Context(), append([]string{"-n", f.namespace}, args...)...)
	if err != nil {
		f.t.Fatal(err)
	}
	return out
}

// pods returns those of the DaemonSet that are bound and not on their way out, by name.
func (f *fixture) pods() map[string]*corev1.Pod {
	f.t.Helper()
	list, err := env.admin.CoreV1().Pods(f.namespace).List(f.t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
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

// uids tell whether pods were restarted.
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
	if err := env.admin.CoreV1().Pods(f.namespace).Delete(f.t.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		f.t.Fatal(err)
	}
	eventually(f.t, "the deleted pod has a successor", func() bool {
		pods := f.pods()
		return pods[pod] == nil && len(pods) == nodes
	})
}

// say describes the marks on a pod in a word or two.
func say(pod *corev1.Pod) string {
	c := upgrade.Condition(pod, upgrade.NeedCondition)
	_, annotated := pod.Annotations[upgrade.TargetAnnotation]
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

// marks says how many pods there are of each kind.
func (f *fixture) marks() map[string]int {
	out := map[string]int{}
	for _, pod := range f.pods() {
		out[say(pod)]++
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
	eventually(f.t, fmt.Sprintf("the pods are %v", want), func() bool {
		got = f.marks()
		return maps.Equal(got, want)
	})
}

// events returns the messages of Events on the DaemonSet with this reason, each
// with how often it was told.
func (f *fixture) events(reason string) map[string]int32 {
	f.t.Helper()
	list, err := env.admin.CoreV1().Events(f.namespace).List(f.t.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.kind=DaemonSet,involvedObject.name=" + name + ",reason=" + reason})
	if err != nil {
		f.t.Fatal(err)
	}
	out := map[string]int32{}
	for i := range list.Items {
		out[list.Items[i].Type+": "+list.Items[i].Message] += list.Items[i].Count
	}
	return out
}

// awaitEvent waits for an Event with these words.
func (f *fixture) awaitEvent(reason string, words ...string) {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("an Event %s says %q", reason, words), func() bool {
		for message := range f.events(reason) {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(message, w) }) {
				return true
			}
		}
		return false
	})
}
