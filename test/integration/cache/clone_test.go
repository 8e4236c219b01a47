package cache

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// Of two kubelets that are one node, this one's requests pass the hub. The other has another boot ID, since it runs on a copy of the disk.
// The node has a node's rights, and no others.
func TestACopyOfTheNodesDiskIsNoticed(t *testing.T) {
	t.Parallel()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Skip("NOT RUN: this kernel has no boot ID:", err)
	}
	h := makeHub(t, env.ServerURL())
	h.IdentifyAs(env.Cluster, "system:nodes")
	h.start()
	node := h.makeNode()
	lease, err := env.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(t.Context(),
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: h.name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	status := func(id []byte) []byte {
		return fmt.Appendf(nil, `{"status":{"nodeInfo":{"bootID":%q}}}`, bytes.TrimSpace(id))
	}
	ours := func() {
		t.Helper()
		if a := h.node.send(t, http.MethodPatch, node+"/status", protobuf, strategic, status(boot)); a.status != http.StatusOK {
			t.Fatal(a)
		}
	}
	read := func() *corev1.Node {
		t.Helper()
		a := h.node.get(t, node, protobuf)
		if a.status != http.StatusOK {
			t.Fatal(a)
		}
		return decodeAs[*corev1.Node](t, a)
	}
	renew := fmt.Appendf(nil, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":%q,"resourceVersion":%q},"spec":{"holderIdentity":%[1]q}}`, h.name, lease.ResourceVersion)
	ours()
	for turn := range 3 {
		if _, err := env.client.CoreV1().Nodes().PatchStatus(t.Context(), h.name, status([]byte("1b4e28ba-2fa1-11d2-883f-0016d3cca427"))); err != nil {
			t.Fatal(err)
		}
		if _, err := env.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(t.Context(), h.name, types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"leaseTransitions":%d}}`, turn+1), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		read()
		if a := h.node.send(t, http.MethodPut, leases+"/"+h.name, protobuf, "application/json", renew); a.status != http.StatusConflict {
			t.Fatal(a)
		}
		ours()
	}
	if a := h.api.get(t, "/metrics", ""); !bytes.Contains(a.body, []byte("\nedgehub_node_cloned 1\n")) {
		t.Fatal("edgehub_node_cloned is not 1")
	}
	poll.Until(t, patience, "the Node has the condition", func() bool {
		for _, c := range read().Status.Conditions {
			if c.Type == "apps.openyurt.io/Cloned" {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	})
	poll.Until(t, patience, "there is an Event", func() bool {
		list, err := env.client.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=NodeCloned,involvedObject.name=" + h.name})
		return err == nil && len(list.Items) == 1
	})
}
