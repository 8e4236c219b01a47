package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// TestARestoredStoreFollowsAnUpgradeInPlace puts etcd back to backups from before an upgrade in place: while the cloud is away from the
// node, to one in which the pod is marked, and after the cloud has followed, to one that does not know the new version. Nothing restarts:
// the cloud follows at once, and once an admin has rolled out that version again.
func TestARestoredStoreFollowsAnUpgradeInPlace(t *testing.T) {
	of := newDaemon(t, "in-place-restored", "node1")
	of.permit()
	unreleased := backUpStore(t)
	d := of.inPlace("")
	released := backUpStore(t)
	const ahead = 300 // the node knows versions that the store will not have for long
	for i := range ahead {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"changed":"%d"}}}`, i+1)
		if _, err := env.client.CoreV1().Pods(d.ns).Patch(t.Context(), d.started.pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	d.awaitOnNode("the pod's last change", func(pod *corev1.Pod) string {
		if changed := pod.Annotations["changed"]; changed != strconv.Itoa(ahead) {
			return changed + " is the last one"
		}
		return ""
	})
	d.cut("refused")
	d.post(api.UpgradePath(d.ns, d.started.pod.Name), http.StatusOK, "(offline, in place)")
	d.serves("one", time.Now())
	d.awaitUpgrade(api.Done)
	others := d.steady(map[string]started{"the upgraded pod": d.started})

	restoreStore(t, released)
	giveBack(t, d.node)
	d.expectFollowed()

	restoreStore(t, unreleased)
	eventually(t, "the cloud does not know the version", func(ctx context.Context) string {
		pod, err := env.client.CoreV1().Pods(d.ns).Get(ctx, d.started.pod.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if c := api.Condition(pod, api.ReconciledCondition); c == nil || c.Status != corev1.ConditionFalse || c.Reason != api.ReasonRevisionUnknown {
			return fmt.Sprintf("%+v", pod.Status.Conditions)
		}
		return ""
	})
	setImage(t, d.ns, "app", d.image)
	d.expectFollowed()
	others()

	// All nodes, the control plane and the controller are at work for the tests to come.
	ns := namespace(t, "after-a-restore")
	createDaemonSet(t, ns, otaDaemonSet("app"))
	for _, node := range env.Nodes() {
		needs(t, node, readyPodOn(t, ns, node.Name(), ""), corev1.ConditionFalse)
		awaitNode(t, node)
	}
}

// expectFollowed waits until the cloud has the pod as it runs.
func (d *inPlace) expectFollowed() {
	d.t.Helper()
	pod := d.awaitCondition(api.ReasonReconciled)
	if pod.Labels[appsv1.ControllerRevisionHashLabelKey] != d.revision || pod.Spec.Containers[0].Image != d.image || api.Condition(pod, api.ReconciledCondition) != nil {
		d.t.Errorf("the cloud has labels %v, image %s and conditions %+v", pod.Labels, pod.Spec.Containers[0].Image, pod.Status.Conditions)
	}
	if pod.UID != d.started.pod.UID {
		d.t.Errorf("the pod is %s, and was %s", pod.UID, d.started.pod.UID)
	}
	d.expectRestarts(pod, 1)
	d.stays("after the cloud has followed")
}

func backUpStore(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	if err := env.BackUpStore(folder); err != nil {
		t.Fatal(err)
	}
	return folder
}

// restoreStore puts the store back, whose versions go back with it.
func restoreStore(t *testing.T, backup string) {
	t.Helper()
	before := storeVersion(t)
	if err := env.RestoreStore(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	if now := storeVersion(t); now >= before {
		t.Fatalf("the store is at version %d, and was at %d: this test shows nothing", now, before)
	}
}

func storeVersion(t *testing.T) uint64 {
	t.Helper()
	list, err := env.client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	version, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return version
}
