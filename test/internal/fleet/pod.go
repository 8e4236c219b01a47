package fleet

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// Break makes an image one that cannot be pulled; Mend undoes it.
func (f *Fleet) Break(image string) { f.mark(func() { f.broken[image] = true }) }

// Mend makes an image one that can be pulled.
func (f *Fleet) Mend(image string) {
	f.mark(func() { delete(f.broken, image) })
	f.revisitAll()
}

// Fail makes a pod one that is not Ready, for good.
func (f *Fleet) Fail(pod *corev1.Pod) {
	f.mark(func() { f.failed[pod.UID] = true })
	f.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
}

// Heal lets all pods that failed become Ready again.
func (f *Fleet) Heal() {
	f.mark(func() { clear(f.failed) })
	f.revisitAll()
}

func (f *Fleet) mark(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *Fleet) revisitAll() {
	for _, object := range f.pods.GetStore().List() {
		if pod, ok := object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
			f.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
	}
}

// treat does what a kubelet would, and returns when to look again.
func (f *Fleet) treat(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
	object, ok, err := f.pods.GetStore().GetByKey(key.String())
	if err != nil || !ok {
		return 0, err
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return 0, nil
	}
	switch {
	case f.away(pod.Spec.NodeName):
		return 0, nil
	case !pod.DeletionTimestamp.IsZero():
		now := int64(0)
		return 0, f.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
	}
	if wait := f.options.Start - f.age(pod.UID); wait > 0 {
		return wait, nil
	}
	trouble := f.trouble(pod)
	if ready(pod) == (trouble == "") && pod.Status.Phase != corev1.PodPending {
		return 0, nil
	}
	if trouble == waitingReason(pod) && trouble != "" {
		return 0, nil
	}
	return 0, f.report(ctx, pod, trouble)
}

// age is how long a pod has been there for its kubelet.
func (f *Fleet) age(uid types.UID) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.since[uid]; !ok {
		f.since[uid] = time.Now()
	}
	return time.Since(f.since[uid])
}

// trouble is why a pod is not to be Ready, "" if it is.
func (f *Fleet) trouble(pod *corev1.Pod) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.broken[pod.Spec.Containers[0].Image]:
		return "ImagePullBackOff"
	case f.failed[pod.UID]:
		return "CrashLoopBackOff"
	default:
		return ""
	}
}

func ready(pod *corev1.Pod) bool {
	c := api.Condition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func waitingReason(pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Waiting != nil {
			return s.State.Waiting.Reason
		}
	}
	return ""
}

// report writes a pod's status.
func (f *Fleet) report(ctx context.Context, pod *corev1.Pod, trouble string) error {
	var (
		stamp        = time.Now().UTC().Format(time.RFC3339)
		name         = pod.Spec.Containers[0].Name
		image        = pod.Spec.Containers[0].Image
		phase, ready = corev1.PodRunning, corev1.ConditionTrue
		state        = fmt.Sprintf(`{"running":{"startedAt":%q}}`, stamp)
	)
	if trouble != "" {
		ready, state = corev1.ConditionFalse, fmt.Sprintf(`{"waiting":{"reason":%q}}`, trouble)
	}
	if trouble == "ImagePullBackOff" {
		phase = corev1.PodPending
	}
	patch := fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"phase":%q,"startTime":%q,
		"conditions":[{"type":"Ready","status":%q,"lastTransitionTime":%q}],
		"containerStatuses":[{"name":%q,"image":%q,"imageID":"","ready":%t,"restartCount":0,"state":%s}]}}`,
		pod.UID, phase, stamp, ready, stamp, name, image, ready == corev1.ConditionTrue, state)
	_, err := f.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	return err
}
