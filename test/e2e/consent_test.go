package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// TestOwnerGoesBack removes the image of the earlier version as kubelet's garbage collection does. The node's
// containerd, 1.6, shows kubelet no pins: the hub has to put the image back.
func TestOwnerGoesBack(t *testing.T) {
	d := newDaemon(t, "rollback", "node1")
	d.release("one", megabyte)
	d.upgrade()
	image, revision := d.image, d.revision
	d.release("two", megabyte)
	d.upgrade()
	before := d.pod
	d.awaitRetained(image, revision)
	d.removeImage(image)
	eventually(t, "the image is put back, and pinned", func(ctx context.Context) string {
		line, err := d.look(ctx, image)
		if err == nil && !strings.Contains(line, pinned) {
			err = fmt.Errorf("containerd has %q", line)
		}
		return words(err)
	})
	d.awaitRetained(image, revision)

	env.Registry().Forget()
	d.cut("refused")
	d.post(api.RollbackPath(d.ns, before.Name), http.StatusAccepted,
		"Rollback of pod "+d.ns+"/"+before.Name+" queued: it starts when the cloud can be reached")
	answers(t, before, "two")
	giveBack(t, d.node)
	answers(t, before, "one")
	d.awaitRolledBack(image, revision)
	d.expectNothingFetched()

	d.awaitMark()
	d.upgrade()
	d.expectNothingFetched()
	d.expectLetGo()
}

// awaitRetained waits until the node shows the version before the present one as one that its owner can go back to.
func (d *daemon) awaitRetained(image, revision string) {
	d.t.Helper()
	eventually(d.t, "revision "+revision+" is retained", func(ctx context.Context) string {
		code, body := rawclient.Ask(ctx, http.MethodGet, d.node.APIURL()+api.HistoryPath(d.ns, d.pod.Name))
		var history api.History
		if err := json.Unmarshal([]byte(body), &history); code != http.StatusOK || err != nil || len(history.Items) != 2 {
			return fmt.Sprint(code, " ", body)
		}
		now, earlier := history.Items[0], history.Items[1]
		if !now.Current || now.Revision != d.revision || earlier.Revision != revision || len(earlier.Images) != 1 || earlier.Images[0] != image || !earlier.Retained {
			return body
		}
		return ""
	})
}

// removeImage removes an image through CRI, with all its names.
func (d *daemon) removeImage(image string) {
	d.t.Helper()
	conn, err := grpc.NewClient("unix://"+d.node.ContainerdSocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := cri.NewImageServiceClient(conn).RemoveImage(d.t.Context(), &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: image}}); err != nil {
		d.t.Fatal(err)
	}
}

// awaitRolledBack waits until the cloud sees that the daemon's pod, the same as before, runs an earlier version.
func (d *daemon) awaitRolledBack(image, revision string) {
	d.t.Helper()
	pod := d.restarted()
	eventually(d.t, "the cloud sees PodRolledBack True on "+pod.Name, func(ctx context.Context) string {
		var err error
		if pod, err = env.client.CoreV1().Pods(d.ns).Get(ctx, pod.Name, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		c := api.Condition(pod, api.RolledBackCondition)
		if c == nil || c.Status != corev1.ConditionTrue {
			return fmt.Sprintf("it is %+v", c)
		}
		return ""
	})
	status := pod.Status.ContainerStatuses[0]
	if pod.Spec.Containers[0].Image != image || pod.Labels["controller-revision-hash"] != revision || status.RestartCount != 1 {
		d.t.Errorf("pod %s runs %s of revision %s, its container was restarted %d times; want %s of %s, and once", pod.Name,
			pod.Spec.Containers[0].Image, pod.Labels["controller-revision-hash"], status.RestartCount, image, revision)
	}
}

// post sends a POST to the node's API, whose answer must have the code and the words.
func (d *daemon) post(path string, code int, words string) {
	d.t.Helper()
	if got, body := rawclient.Ask(d.t.Context(), http.MethodPost, d.node.APIURL()+path); got != code || !strings.Contains(body, words) {
		d.t.Fatalf("POST %s: %d %s; want %d with %q", path, got, body, code, words)
	}
}

// awaitHold waits until the cloud sees a hold of the daemon's pod with this reason, or none if it is empty.
func (d *daemon) awaitHold(reason string) {
	d.t.Helper()
	eventually(d.t, "the cloud sees the hold of "+d.pod.Name, func(ctx context.Context) string {
		pod, err := env.client.CoreV1().Pods(d.ns).Get(ctx, d.pod.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		hold, held, err := api.HoldOf(pod)
		if err != nil || held != (reason != "") || hold.Reason != reason {
			return fmt.Sprintf("it is %+v, %v", hold, err)
		}
		return ""
	})
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
