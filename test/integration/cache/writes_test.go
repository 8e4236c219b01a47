package cache

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

const (
	strategic = "application/strategic-merge-patch+json"
	merge     = "application/merge-patch+json"
	leases    = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
)

// send makes a request with a body.
func (c *client) send(t *testing.T, method, path, accept, contentType string, body []byte) answer {
	t.Helper()
	return c.do(t, request{method: method, path: path, accept: accept, contentType: contentType, body: body})
}

// decodeAs reads an object as a client would.
func decodeAs[T runtime.Object](t *testing.T, a answer) T {
	t.Helper()
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(a.body, nil, nil)
	if err != nil {
		t.Fatalf("%v: %v", err, a)
	}
	typed, ok := object.(T)
	if !ok {
		t.Fatalf("it is a %T: %v", object, a)
	}
	return typed
}

// makeNode makes the hub's Node.
func (h *hub) makeNode() string {
	h.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.name, Labels: map[string]string{"edge": "yes"}}}
	if _, err := env.client.CoreV1().Nodes().Create(h.t.Context(), node, metav1.CreateOptions{}); err != nil {
		h.t.Fatal(err)
	}
	return "/api/v1/nodes/" + h.name
}

// offline, the status that a node reports of itself is applied to what is cached, and
// shown in each outage until the kubelet has reported it to the cloud.
func TestTheStatusOfTheNodeIsOverlaid(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	path := h.makeNode()
	h.node.get(t, path, protobuf)
	w := h.node.watch(t, "/api/v1/nodes?"+watchListQuery+"&fieldSelector=metadata.name%3D"+h.name, protobuf)
	w.initial(t)
	condition := func(reason string) []byte {
		return fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"True","reason":%q}]}}`, reason)
	}
	patch := func(reason string) answer {
		t.Helper()
		return h.node.send(t, http.MethodPatch, path+"/status?timeout=10s", protobuf, strategic, condition(reason))
	}
	reasons := func(a answer) (out []string) {
		t.Helper()
		for _, c := range decodeAs[*corev1.Node](t, a).Status.Conditions {
			out = append(out, string(c.Type)+" "+c.Reason)
		}
		return out
	}
	if a := patch("Online"); a.status != http.StatusOK {
		t.Fatal(a)
	}
	w.expect(t, watch.Modified, h.name)
	h.lose()
	for _, reason := range []string{"First", "Second"} {
		a := patch(reason)
		if a.status != http.StatusOK || !slices.Equal(reasons(a), []string{"Ready " + reason}) {
			t.Fatalf("PATCH: %v", a)
		}
		if got := h.node.get(t, path, protobuf); !slices.Equal(reasons(got), []string{"Ready " + reason}) {
			t.Errorf("GET after PATCH has %v", reasons(got))
		}
	}
	if node := decodeAs[*corev1.Node](t, h.node.get(t, path, protobuf)); node.Labels["edge"] != "yes" || node.Name != h.name || node.UID == "" {
		t.Errorf("the rest of the node is not what it was: %+v", node.ObjectMeta)
	}
	h.connect()
	if got := reasons(h.node.get(t, path, protobuf)); !slices.Equal(got, []string{"Ready Online"}) {
		t.Errorf("with the cloud back, the node has %v", got)
	}
	if a := patch("Again"); a.status != http.StatusOK {
		t.Fatal(a)
	}
	h.lose()
	if got := reasons(h.node.get(t, path, protobuf)); !slices.Equal(got, []string{"Ready Again"}) {
		t.Errorf("in an outage after the kubelet has reported again, the node has %v", got)
	}
}

// pod makes a pod on a node.
func (s *space) pod(node, name string) *corev1.Pod {
	s.t.Helper()
	no := false
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName: node, AutomountServiceAccountToken: &no,
		Containers: []corev1.Container{{Name: "c", Image: "app.invalid/app:v1"}},
	}}
	var made *corev1.Pod
	poll.Until(s.t, patience, "the pod is admitted", func() (ok bool) { // once the namespace has its service account
		var err error
		made, err = env.client.CoreV1().Pods(s.name).Create(s.t.Context(), pod, metav1.CreateOptions{})
		return err == nil
	})
	return made
}

// overlays are for the node itself, and for what it is responsible for.
func TestOnlyTheNodesOwnStatusIsOverlaid(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	path := h.makeNode()
	h.node.get(t, path, protobuf)
	s.create("c")
	h.node.get(t, s.one("c"), protobuf)
	alice := h.as(s.account("alice"))
	alice.get(t, s.one("c"), protobuf)
	h.lose()
	status := []byte(`{"status":{"phase":"x"}}`)
	for _, c := range []struct {
		who    *client
		method string
		path   string
	}{
		{alice, http.MethodPatch, path + "/status"},
		{h.node, http.MethodPatch, path},
		{h.node, http.MethodPatch, path + "-other/status"},
		{h.node, http.MethodPatch, s.one("c")},
		{h.node, http.MethodDelete, s.one("c")},
		{h.node, http.MethodDelete, s.path},
		{h.node, http.MethodPost, s.path},
		{h.node, http.MethodPut, s.one("c")},
		{h.node, http.MethodPut, leases + "/other"},
		{h.node, http.MethodPost, "/api/v1/namespaces/" + s.name + "/pods/p/eviction"},
		{h.node, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews"},
	} {
		c.who.refused(t, request{method: c.method, path: c.path, contentType: merge, body: status}, http.StatusServiceUnavailable)
	}
}

// offline, making what exists is answered as an apiserver does, so that a kubelet that
// starts goes on.
func TestMakingWhatExistsIsAConflict(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	path := h.makeNode()
	csi := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: h.name}}
	csi.Kind, csi.APIVersion = "CSINode", "storage.k8s.io/v1"
	if _, err := env.client.StorageV1().CSINodes().Create(t.Context(), csi, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.node.get(t, path, protobuf)
	const csiNodes = "/apis/storage.k8s.io/v1/csinodes"
	h.node.get(t, csiNodes+"/"+h.name, protobuf)
	h.lose()
	node := func(name string) []byte {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		return encode(t, n, protobuf)
	}
	for _, c := range []struct {
		path string
		body []byte
		kind string
		want int
	}{
		{"/api/v1/nodes", node(h.name), protobuf, http.StatusConflict},
		{"/api/v1/nodes", node("other"), protobuf, http.StatusServiceUnavailable},
		{csiNodes, fmt.Appendf(nil, `{"kind":"CSINode","apiVersion":"storage.k8s.io/v1","metadata":{"name":%q},"spec":{"drivers":[]}}`, h.name), asJSON, http.StatusConflict},
	} {
		a := h.node.refused(t, request{method: http.MethodPost, path: c.path, accept: kubelet, contentType: c.kind, body: c.body}, c.want)
		if c.want == http.StatusConflict && !strings.Contains(string(a.body), string(metav1.StatusReasonAlreadyExists)) {
			t.Errorf("%s: the reason is not AlreadyExists: %v", c.path, a)
		}
	}
}
