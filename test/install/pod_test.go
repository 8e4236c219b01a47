package install

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

const podName = "app"

// startPod runs a pod, and returns its container's id.
func (n *node) startPod() string {
	n.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: podName},
		Spec: corev1.PodSpec{
			NodeName: nodeName, TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{Name: "app", Image: n.image}},
		},
	}
	if _, err := n.client.CoreV1().Pods("default").Create(n.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	var id string
	poll.Check(n.t.Context(), n.t, "the pod runs", func(ctx context.Context) error {
		var err error
		id, err = n.container(ctx)
		return err
	})
	return id
}

func (n *node) container(ctx context.Context) (string, error) {
	pod, err := n.client.CoreV1().Pods("default").Get(ctx, podName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if len(pod.Status.ContainerStatuses) == 0 {
		return "", errors.New("it has no container yet")
	}
	s := pod.Status.ContainerStatuses[0]
	if s.State.Running == nil || s.RestartCount > 0 {
		return "", fmt.Errorf("container: %+v", s)
	}
	return s.ContainerID, nil
}

// lives fails the test unless the container still runs, in the eyes of the runtime.
func (n *node) lives(container string) {
	n.t.Helper()
	out, err := n.Run(n.t.Context(), "ctr", "--namespace=k8s.io", "tasks", "list")
	if err != nil {
		n.t.Fatal(err)
	}
	id := strings.TrimPrefix(container, "containerd://")
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, id) && strings.Contains(line, "RUNNING") {
			return
		}
	}
	n.t.Errorf("container %s does not run any more:\n%s", id, out)
}

// holdsImage has containerd keep an image for the hub. released fails the test unless it is kept no more.
func (n *node) holdsImage() (released func()) {
	n.t.Helper()
	const image, lease = "docker.io/library/nginx:latest", "edgehub-prepull-86cee2c10898a48ff47a0626" // as in imagepull/engine/lease
	if _, err := n.Run(n.t.Context(), "ctr", "--namespace=k8s.io", "leases", "create", "--id", lease, "edgehub.io/prepull="+image); err != nil {
		n.t.Fatal(err)
	}
	return func() {
		n.t.Helper()
		out, err := n.Run(n.t.Context(), "ctr", "--namespace=k8s.io", "leases", "list", "--quiet")
		if err != nil || strings.Contains(out, lease) {
			n.t.Errorf("containerd still has the leases %s: %v", out, err)
		}
	}
}
