package imagepull

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// daemon is a DaemonSet with one pod, on the rig's node.
type daemon struct {
	*rig
	name string
	// pod is of the first revision. revision is the newest, and the pod's target.
	pod      *corev1.Pod
	revision string
}

// oldImage is never pulled: no kubelet runs.
const oldImage = "none.invalid/app:old"

// daemonSet creates a DaemonSet with a pod on the node.
func (r *rig) daemonSet(name string, secrets ...string) *daemon {
	r.Helper()
	d := &daemon{rig: r, name: name}
	labels := map[string]string{"app": name}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector:       &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{corev1.LabelHostname: r.node},
					Tolerations:  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					Containers:   []corev1.Container{{Name: "c0", Image: oldImage}},
				},
			},
		},
	}
	for _, s := range secrets {
		set.Spec.Template.Spec.ImagePullSecrets = append(set.Spec.Template.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: s})
	}
	_, err := env.admin.AppsV1().DaemonSets(r.namespace).Create(r.Context(), set, metav1.CreateOptions{})
	r.must(err)
	return d
}

// awaitPod waits for a pod on the node for which holds returns true.
func (d *daemon) awaitPod(what string, holds func(*corev1.Pod) bool) *corev1.Pod {
	d.Helper()
	var found *corev1.Pod
	d.eventually(what, func() bool {
		list, err := env.admin.CoreV1().Pods(d.namespace).List(d.Context(), metav1.ListOptions{LabelSelector: "app=" + d.name})
		d.must(err)
		i := slices.IndexFunc(list.Items, func(p corev1.Pod) bool {
			return p.Spec.NodeName == d.node && p.DeletionTimestamp == nil && holds(&p)
		})
		if i >= 0 {
			found = &list.Items[i]
		}
		return i >= 0
	})
	return found
}

// upgradable creates a DaemonSet whose pod needs an upgrade to a revision with these images.
func (r *rig) upgradable(name string, images ...string) *daemon {
	r.Helper()
	d := r.daemonSet(name)
	d.change(images...)
	d.mark(false)
	return d
}

// change changes the DaemonSet to a revision with these images.
func (d *daemon) change(images ...string) {
	d.Helper()
	if d.pod == nil { // the pod must be of the revision before
		d.pod = d.awaitPod(d.name+" has its pod", func(*corev1.Pod) bool { return true })
	}
	var containers []corev1.Container
	for i, image := range images {
		containers = append(containers, corev1.Container{Name: fmt.Sprintf("c%d", i), Image: image})
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": containers}}}})
	d.must(err)
	_, err = env.admin.AppsV1().DaemonSets(d.namespace).Patch(d.Context(), d.name, types.MergePatchType, patch, metav1.PatchOptions{})
	d.must(err)
	before := d.revision
	d.eventually(d.name+" has another revision", func() bool {
		d.revision = d.newest(images)
		return d.revision != "" && d.revision != before
	})
}

// newest returns the hash of the revision with these images, or "" if there is none yet.
func (d *daemon) newest(images []string) string {
	d.Helper()
	list, err := env.admin.AppsV1().ControllerRevisions(d.namespace).List(d.Context(), metav1.ListOptions{LabelSelector: "app=" + d.name})
	d.must(err)
	for i := range list.Items {
		c := &list.Items[i]
		if !slices.ContainsFunc(images, func(image string) bool { return !strings.Contains(string(c.Data.Raw), `"image":"`+image+`"`) }) {
			return c.Labels[appsv1.ControllerRevisionHashLabelKey]
		}
	}
	return ""
}

// mark patches the pod like edgehub-controller.
func (d *daemon) mark(prepull bool) {
	d.Helper()
	set, err := env.admin.AppsV1().DaemonSets(d.namespace).Get(d.Context(), d.name, metav1.GetOptions{})
	d.must(err)
	target := api.NewTarget(d.revision, &set.Spec.Template.Spec)
	if prepull {
		target.Prepull = &metav1.Time{Time: time.Now()}
	}
	d.patchPod(env.controller, d.pod, map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{api.TargetAnnotation: target.Encode()}},
		"status":   map[string]any{"conditions": []corev1.PodCondition{need(d.revision)}},
	})
}

func need(revision string) corev1.PodCondition {
	return corev1.PodCondition{Type: api.NeedCondition, Status: corev1.ConditionTrue, Message: api.Message(revision)}
}

// patchPod changes annotations and status, like controller and kubelet.
func (r *rig) patchPod(client kubernetes.Interface, pod *corev1.Pod, change map[string]any) {
	r.Helper()
	patch, err := json.Marshal(change)
	r.must(err)
	_, err = client.CoreV1().Pods(r.namespace).Patch(r.Context(), pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	r.must(err)
}

// knowsMark reports whether the hub shows the pod with the target that it has.
func (r *rig) knowsMark(pod string) bool {
	r.Helper()
	want, err := env.admin.CoreV1().Pods(r.namespace).Get(r.Context(), pod, metav1.GetOptions{})
	r.must(err)
	a := r.call(http.MethodGet, api.Pods)
	var list corev1.PodList
	if a.code != http.StatusOK || json.Unmarshal([]byte(a.body), &list) != nil {
		return false
	}
	return slices.ContainsFunc(list.Items, func(p corev1.Pod) bool {
		return p.UID == want.UID && p.Annotations[api.TargetAnnotation] == want.Annotations[api.TargetAnnotation]
	})
}

// conditionText returns status, reason and message of the condition PodImageReady, or "nothing".
func conditionText(pod *corev1.Pod) string {
	c := api.Condition(pod, api.ImageCondition)
	if c == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
}

// condition returns the pod's condition in the cloud now.
func (d *daemon) condition() string {
	d.Helper()
	pod, err := env.admin.CoreV1().Pods(d.namespace).Get(d.Context(), d.pod.Name, metav1.GetOptions{})
	d.must(err)
	return conditionText(pod)
}

// ready returns the pod's condition once its images are ready.
func (d *daemon) ready() string { return "True PrepullReady " + api.Message(d.revision) }

// not returns the pod's condition while they are not ready.
func (d *daemon) not(reason string) string {
	return "False Prepull" + reason + " " + api.Message(d.revision)
}

// awaitCondition waits until the pod has this condition in the cloud.
func (d *daemon) awaitCondition(want string) {
	d.Helper()
	last := ""
	defer func() {
		if d.Failed() {
			d.Logf("%s says %s", d.pod.Name, last)
		}
	}()
	d.eventually(d.pod.Name+" says "+want, func() bool {
		last = d.condition()
		return last == want
	})
}

// record records the pod's conditions in the cloud from now on. The returned function waits for
// the condition last.
func (d *daemon) record() (until func(last string) []string) {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), poll.Patience)
	w, err := env.admin.CoreV1().Pods(d.namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + d.pod.Name, ResourceVersion: d.pod.ResourceVersion,
	})
	d.must(err)
	return func(last string) []string {
		defer cancel()
		defer w.Stop()
		var seen []string
		for event := range w.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || len(seen) > 0 && seen[len(seen)-1] == conditionText(pod) {
				continue
			}
			if seen = append(seen, conditionText(pod)); conditionText(pod) == last {
				break
			}
		}
		return seen
	}
}

// awaitEvent waits for an Event of the pod with these words.
func (d *daemon) awaitEvent(reason, words string) {
	d.Helper()
	d.eventually("an Event "+reason+" on "+d.pod.Name+" says "+words, func() bool {
		list, err := env.admin.CoreV1().Events(d.namespace).List(d.Context(), metav1.ListOptions{
			FieldSelector: "involvedObject.uid=" + string(d.pod.UID) + ",reason=" + reason,
		})
		d.must(err)
		return slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, words) })
	})
}

// upgrade deletes the pod, and reports its successor as running, like the kubelet.
func (d *daemon) upgrade() {
	d.Helper()
	now := int64(0)
	d.must(env.admin.CoreV1().Pods(d.namespace).Delete(d.Context(), d.pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	next := d.awaitPod(d.name+" has a pod of the new revision", func(p *corev1.Pod) bool {
		return p.Labels[appsv1.ControllerRevisionHashLabelKey] == d.revision
	})
	var statuses []corev1.ContainerStatus
	for _, c := range next.Spec.Containers {
		statuses = append(statuses, corev1.ContainerStatus{Name: c.Name, Image: c.Image, ContainerID: "containerd://" + string(next.UID) + c.Name, Ready: true})
	}
	d.patchPod(env.admin, next, map[string]any{"status": map[string]any{"phase": corev1.PodRunning, "containerStatuses": statuses}})
}

// online reports whether the hub reports that it is online.
func (r *rig) online() bool {
	a := r.call(http.MethodGet, api.Readyz)
	return a.code == http.StatusOK && strings.TrimSpace(a.body) == "OK"
}
