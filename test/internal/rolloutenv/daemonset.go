package rolloutenv

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// DaemonSet is one in a namespace of its own.
type DaemonSet struct {
	Namespace string

	t testing.TB
	s *Env
}

// Name is every DaemonSet's, and the value of its pods' label app.
const Name = "web"

// NewDaemonSet makes one with AdvancedRollingUpdate, unless the annotations name another
// strategy, and waits for its pods to be Ready. Otherwise it is as Create.
func (s *Env) NewDaemonSet(t testing.TB, annotations map[string]string, change ...func(*appsv1.DaemonSet)) *DaemonSet {
	t.Helper()
	all := map[string]string{"apps.openyurt.io/update-strategy": "AdvancedRollingUpdate"}
	maps.Copy(all, annotations)
	d := s.Create(t, all, change...)
	poll.Eventually(t, "every node that should has a pod that is Ready", func() bool {
		got := d.Get()
		return got.Status.DesiredNumberScheduled > 0 && got.Status.NumberReady == got.Status.DesiredNumberScheduled &&
			got.Status.ObservedGeneration == got.Generation
	})
	return d
}

// Create makes a DaemonSet with the update strategy OnDelete and these annotations, in a
// namespace of its own. The cleanup removes both.
func (s *Env) Create(t testing.TB, annotations map[string]string, change ...func(*appsv1.DaemonSet)) *DaemonSet {
	t.Helper()
	ns, err := s.Admin.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d := &DaemonSet{Namespace: ns.Name, t: t, s: s}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: Name, Annotations: annotations}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": Name}}
	ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	ds.Spec.Template.Labels = ds.Spec.Selector.MatchLabels
	ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1"}}
	for _, c := range change {
		c(ds)
	}
	if _, err := s.Admin.AppsV1().DaemonSets(d.Namespace).Create(t.Context(), ds, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.remove)
	return d
}

// remove waits, so that the next test's pods find the nodes as they were.
func (d *DaemonSet) remove() {
	ctx := context.Background()
	if err := d.s.Admin.CoreV1().Namespaces().Delete(ctx, d.Namespace, metav1.DeleteOptions{}); err != nil {
		d.t.Error(err)
	}
	now := int64(0)
	background := metav1.DeletePropagationBackground
	err := d.s.Admin.AppsV1().DaemonSets(d.Namespace).Delete(ctx, Name, metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) {
		d.t.Error(err)
	}
	_ = d.s.Admin.CoreV1().Pods(d.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
}

// Remake deletes it, with or without its pods, and makes one like it.
func (d *DaemonSet) Remake(orphan bool) {
	d.t.Helper()
	daemonSets, ds := d.s.Admin.AppsV1().DaemonSets(d.Namespace), d.Get()
	propagation := metav1.DeletePropagationBackground
	if orphan {
		propagation = metav1.DeletePropagationOrphan
	}
	if err := daemonSets.Delete(d.t.Context(), Name, metav1.DeleteOptions{PropagationPolicy: &propagation}); err != nil {
		d.t.Fatal(err)
	}
	again := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: Name, Annotations: ds.Annotations}, Spec: ds.Spec}
	poll.Eventually(d.t, "the DaemonSet is made again", func() bool {
		_, err := daemonSets.Create(d.t.Context(), again, metav1.CreateOptions{})
		return err == nil
	})
}

// Get reads it.
func (d *DaemonSet) Get() *appsv1.DaemonSet {
	d.t.Helper()
	ds, err := d.s.Admin.AppsV1().DaemonSets(d.Namespace).Get(d.t.Context(), Name, metav1.GetOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	return ds
}

// Annotate sets an annotation, or takes it away when value is nil.
func (d *DaemonSet) Annotate(key string, value any) {
	d.t.Helper()
	v, err := json.Marshal(value)
	if err != nil {
		d.t.Fatal(err)
	}
	d.Patch(`{"metadata":{"annotations":{%q:%s}}}`, key, v)
}

// SetImage changes the pod template.
func (d *DaemonSet) SetImage(image string) {
	d.t.Helper()
	d.Patch(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":%q}]}}}}`, image)
}

// Patch takes a strategic merge patch.
func (d *DaemonSet) Patch(format string, args ...any) {
	d.t.Helper()
	_, err := d.s.Admin.AppsV1().DaemonSets(d.Namespace).Patch(d.t.Context(), Name, types.StrategicMergePatchType,
		fmt.Appendf(nil, format, args...), metav1.PatchOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
}

// Kubectl runs kubectl in its namespace.
func (d *DaemonSet) Kubectl(args ...string) string {
	d.t.Helper()
	out, err := d.s.Cluster.Kubectl(d.t.Context(), append([]string{"-n", d.Namespace}, args...)...)
	if err != nil {
		d.t.Fatal(err)
	}
	return out
}

// Pods returns its pods by node, those that are not on their way out.
func (d *DaemonSet) Pods() map[string]*corev1.Pod {
	d.t.Helper()
	list, err := d.s.Admin.CoreV1().Pods(d.Namespace).List(d.t.Context(), metav1.ListOptions{LabelSelector: "app=" + Name})
	if err != nil {
		d.t.Fatal(err)
	}
	out := map[string]*corev1.Pod{}
	for i := range list.Items {
		if pod := &list.Items[i]; pod.DeletionTimestamp.IsZero() && pod.Spec.NodeName != "" {
			out[pod.Spec.NodeName] = pod
		}
	}
	return out
}

// Hold does what the hub of a node does, whose clock is off, when the owner holds its pod for that
// long. With a length of 0 the hold ends.
func (d *DaemonSet) Hold(pod *corev1.Pod, length, off time.Duration) {
	d.t.Helper()
	if length <= 0 {
		d.annotatePod(pod, api.HoldAnnotation, nil)
		return
	}
	since := metav1.NewTime(time.Now().Add(off).Truncate(time.Second))
	value := api.PodHold{Since: since, Until: metav1.NewTime(since.Add(length)), Reason: "driving"}.Encode()
	d.annotatePod(pod, api.HoldAnnotation, &value)
}

// RollBack does what the hub of a node does when the owner goes back to a revision, while from is the target.
// Without a revision, the owner no longer wants an earlier one.
func (d *DaemonSet) RollBack(pod *corev1.Pod, revision, from string) {
	d.t.Helper()
	if revision == "" {
		d.annotatePod(pod, api.RollbackAnnotation, nil)
		return
	}
	value := api.Rollback{Revision: revision, From: from, Requested: metav1.Now()}.Encode()
	d.annotatePod(pod, api.RollbackAnnotation, &value)
}

// annotatePod does nothing to a pod that is gone by now.
func (d *DaemonSet) annotatePod(pod *corev1.Pod, key string, value *string) {
	d.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": map[string]*string{key: value}}})
	if err != nil {
		d.t.Fatal(err)
	}
	_, err = d.s.Admin.CoreV1().Pods(d.Namespace).Patch(d.t.Context(), pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		d.t.Fatal(err)
	}
}

// With returns the nodes whose pod has this image and is Ready, sorted.
func (d *DaemonSet) With(image string) []string {
	d.t.Helper()
	var out []string
	for node, pod := range d.Pods() {
		if pod.Spec.Containers[0].Image == image && podReady(pod) {
			out = append(out, node)
		}
	}
	slices.Sort(out)
	return out
}

// Await waits until so many nodes have a pod with this image that is Ready.
func (d *DaemonSet) Await(image string, n int) {
	d.t.Helper()
	poll.Eventually(d.t, fmt.Sprintf("%d nodes have a pod with %s that is Ready", n, image), func() bool { return len(d.With(image)) == n })
}

// Condition returns a condition, the zero value if it is not there.
func (d *DaemonSet) Condition(t appsv1.DaemonSetConditionType) appsv1.DaemonSetCondition {
	d.t.Helper()
	for _, c := range d.Get().Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return appsv1.DaemonSetCondition{}
}

// AwaitCondition waits until a condition has this status, reason and words in its
// message.
func (d *DaemonSet) AwaitCondition(t appsv1.DaemonSetConditionType, status corev1.ConditionStatus, reason string, words ...string) {
	d.t.Helper()
	var got appsv1.DaemonSetCondition
	defer func() {
		if d.t.Failed() {
			d.t.Logf("condition %s is %s, %s: %s", t, got.Status, got.Reason, got.Message)
		}
	}()
	poll.Eventually(d.t, fmt.Sprintf("condition %s is %s because of %s %q", t, status, reason, words), func() bool {
		got = d.Condition(t)
		return got.Status == status && got.Reason == reason && holds(got.Message, words)
	})
}

// Events returns the messages of Events on it with this reason, with their type in
// front, and how often each was sent.
func (d *DaemonSet) Events(reason string) map[string]int32 {
	d.t.Helper()
	list, err := d.s.Admin.CoreV1().Events(d.Namespace).List(d.t.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.kind=DaemonSet,reason=" + reason})
	if err != nil {
		d.t.Fatal(err)
	}
	out := map[string]int32{}
	for i := range list.Items {
		out[list.Items[i].Type+": "+list.Items[i].Message] += list.Items[i].Count
	}
	return out
}

// AwaitEvent waits for an Event with these words.
func (d *DaemonSet) AwaitEvent(reason string, words ...string) {
	d.t.Helper()
	poll.Eventually(d.t, fmt.Sprintf("an Event %s says %q", reason, words), func() bool {
		for message := range d.Events(reason) {
			if holds(message, words) {
				return true
			}
		}
		return false
	})
}

func holds(message string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(message, w) })
}
