package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestARestartBeforeTheUpgradeRunsTheOldImage has both versions under one tag. The next one
// is on the node, and the container of the old pod is started again: it is still the old
// version, until the owner upgrades.
func TestARestartBeforeTheUpgradeRunsTheOldImage(t *testing.T) {
	d := newDaemon(t, "prepull-tag", "node3")
	d.release("stable", megabyte)
	d.upgrade()
	before := imageOf(t, d.pod)

	if image, _ := pushApp(t, d.ns, "stable", 2*megabyte); image != d.image {
		t.Fatalf("the tag is %s, want %s", image, d.image)
	}
	d.touch()
	d.pull()
	d.awaitReady()
	d.awaitCondition()
	env.Registry().Forget()
	started := d.running(d.pod.Name)
	d.kill(&started)
	if after := imageOf(t, d.restarted()); after != before {
		t.Errorf("the old pod runs %s after its restart, want %s", after, before)
	}

	d.upgrade()
	if after := imageOf(t, d.pod); after == before {
		t.Errorf("the new pod runs the old image %s", after)
	}
	d.expectNothingFetched()
	d.expectLetGo()
}

// touch changes the DaemonSet's template, but not its image.
func (d *daemon) touch() {
	d.t.Helper()
	const patch = `{"spec":{"template":{"spec":{"containers":[{"name":"app","env":[{"name":"TOUCHED","value":"yes"}]}]}}}}`
	if _, err := env.client.AppsV1().DaemonSets(d.ns).Patch(d.t.Context(), "app", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		d.t.Fatal(err)
	}
	d.awaitMark()
}

// restarted is the daemon's pod once the cloud knows that its container was started again.
func (d *daemon) restarted() (pod *corev1.Pod) {
	d.t.Helper()
	eventually(d.t, "the cloud knows of the restart of "+d.pod.Name, func(ctx context.Context) (said string) {
		var err error
		pod, err = env.client.CoreV1().Pods(d.ns).Get(ctx, d.pod.Name, metav1.GetOptions{})
		if err == nil && (pod.UID != d.pod.UID || pod.Status.ContainerStatuses[0].RestartCount == 0 || !isReady(pod)) {
			err = fmt.Errorf("it is %+v", pod.Status.ContainerStatuses)
		}
		return words(err)
	})
	return pod
}

// imageOf returns the digest of the image that a pod's container runs, as kubelet reports it.
func imageOf(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	if len(pod.Status.ContainerStatuses) != 1 || pod.Status.ContainerStatuses[0].ImageID == "" {
		t.Fatalf("pod %s does not say what it runs: %+v", pod.Name, pod.Status.ContainerStatuses)
	}
	return pod.Status.ContainerStatuses[0].ImageID
}
