package ota

import (
	"net/http"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// The Node is deleted in the cloud, as cloud controllers do, and kubelet registers it when it restarts. In between no pod
// would come in place of one that an upgrade deletes.
func TestWhileTheNodeIsDeletedUpgradesWait(t *testing.T) {
	t.Parallel()
	e := startEdge(t)
	e.create("deleted")
	pod := e.pods(1)["deleted"]
	setImage(t, "deleted", "app.invalid/app:v2")
	e.awaitMarks(1)
	kubelet := &nodeAPI{url: e.hub.Plain}
	own := "/api/v1/nodes/" + e.hub.Name
	expect(t, kubelet.call(t.Context(), http.MethodGet, own), http.StatusOK, e.hub.Name)

	must(t, env.fleet.RemoveNode(t.Context(), e.hub.Name))
	for _, query := range []string{"?resourceVersion=0", ""} { // as kubelet reads it
		expect(t, kubelet.call(t.Context(), http.MethodGet, own+query), http.StatusNotFound, "not found")
	}
	says := "the cloud has no Node " + e.hub.Name
	for _, path := range []string{api.Readyz, api.Node} {
		expect(t, e.node.call(t.Context(), http.MethodGet, path), http.StatusOK, says)
		expect(t, e.node.call(t.Context(), http.MethodGet, path), http.StatusOK, "systemctl restart kubelet")
	}
	expect(t, e.upgrade(pod), http.StatusAccepted, "queued: "+says)
	path := api.UpgradePath(namespace, pod.Name)
	poll.Eventually(t, "the upgrade says what it waits for", func() bool {
		return strings.Contains(e.node.call(t.Context(), http.MethodGet, path).body, says)
	})
	if now := get(t, pod.Name); now.UID != pod.UID || now.DeletionTimestamp != nil {
		t.Errorf("the pod was deleted: %+v", now.ObjectMeta)
	}

	must(t, env.fleet.AddNode(t.Context(), e.hub.Name, map[string]string{corev1.LabelHostname: e.hub.Name}))
	expect(t, kubelet.call(t.Context(), http.MethodGet, own), http.StatusOK, e.hub.Name)
	if got := e.node.call(t.Context(), http.MethodGet, api.Readyz); got.body != "OK" {
		t.Errorf("readyz: %s", got)
	}
	poll.Eventually(t, "the upgrade is carried out", func() bool {
		return strings.Contains(e.node.call(t.Context(), http.MethodGet, path).body, `"Done"`)
	})
	log, err := os.ReadFile(e.hub.Log)
	must(t, err)
	if n := strings.Count(string(log), "the Node was deleted in the cloud"); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
}
