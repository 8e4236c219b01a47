package cache

import (
	"encoding/json"
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

// the same for pods; the pods of the API and of its list are the same.
func TestTheStatusOfPodsIsOverlaid(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.pod(h.name, "p")
	path := "/api/v1/namespaces/" + s.name + "/pods/p"
	h.node.watch(t, "/api/v1/pods?"+watchListQuery+"&fieldSelector=spec.nodeName%3D"+h.name, protobuf).initial(t)
	uid := decodeAs[*corev1.Pod](t, h.node.get(t, path, protobuf)).UID
	h.lose()
	patch := func(uid, phase string) answer {
		t.Helper()
		body := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"phase":%q,"conditions":[{"type":"Ready","status":"True"}]}}`, uid, phase)
		return h.node.send(t, http.MethodPatch, path+"/status", protobuf, strategic, body)
	}
	if a := patch(string(uid), "Running"); a.status != http.StatusOK || decodeAs[*corev1.Pod](t, a).Status.Phase != corev1.PodRunning {
		t.Fatal(a)
	}
	pod := decodeAs[*corev1.Pod](t, h.node.get(t, path, protobuf))
	if pod.Status.Phase != corev1.PodRunning || len(pod.Status.Conditions) == 0 || pod.Spec.NodeName != h.name {
		t.Errorf("GET after PATCH: %+v", pod.Status)
	}
	if a := patch("11111111-1111-1111-1111-111111111111", "Failed"); a.status != http.StatusConflict {
		t.Errorf("the status of another pod of that name: %v", a)
	}
	h.node.refused(t, request{method: http.MethodPatch, path: path, contentType: strategic, body: []byte(`{"metadata":{"labels":{"a":"b"}}}`)}, http.StatusServiceUnavailable)
	h.node.refused(t, request{method: http.MethodDelete, path: path}, http.StatusServiceUnavailable)
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

// offline, a lease is renewed as often as the kubelet likes.
func TestTheLeaseIsOverlaid(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	body := func(version, renewed string) []byte {
		return fmt.Appendf(nil, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":%q,"namespace":"kube-node-lease","resourceVersion":%q},
			"spec":{"holderIdentity":%q,"leaseDurationSeconds":40,"renewTime":%q}}`, h.name, version, h.name, renewed)
	}
	read := func(a answer) (version, renewed string) {
		t.Helper()
		var lease struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
			} `json:"metadata"`
			Spec struct {
				RenewTime string `json:"renewTime"`
			} `json:"spec"`
		}
		if err := json.Unmarshal(a.body, &lease); err != nil || a.status >= 300 {
			t.Fatalf("%v: %v", err, a)
		}
		return lease.Metadata.ResourceVersion, lease.Spec.RenewTime
	}
	if err := h.ensureLeaseNamespace(); err != nil {
		t.Fatal(err)
	}
	const first = "2026-01-01T00:00:00.000000Z"
	version, _ := read(h.node.send(t, http.MethodPost, leases, asJSON, asJSON, body("", first)))
	h.node.get(t, leases+"/"+h.name, asJSON)
	h.lose()
	for _, renewed := range []string{"2026-01-01T00:00:10.000000Z", "2026-01-01T00:00:20.000000Z"} {
		var got string
		if version, got = read(h.node.send(t, http.MethodPut, leases+"/"+h.name, asJSON, asJSON, body(version, renewed))); got != renewed {
			t.Errorf("PUT says it was renewed at %s, want %s", got, renewed)
		}
		if _, got = read(h.node.get(t, leases+"/"+h.name, asJSON)); got != renewed {
			t.Errorf("GET says it was renewed at %s, want %s", got, renewed)
		}
	}
	h.connect()
	online, renewed := read(h.node.get(t, leases+"/"+h.name, asJSON))
	if renewed != first {
		t.Errorf("with the cloud back, the lease was renewed at %s", renewed)
	}
	// What the kubelet has from the outage is good for its next renewal.
	if version != online {
		t.Errorf("offline, renewals have made version %s of %s", version, online)
	}
}

func (h *hub) ensureLeaseNamespace() error {
	var err error
	poll.Until(h.t, patience, "the namespace of leases", func() bool {
		_, err = env.client.CoreV1().Namespaces().Get(h.t.Context(), "kube-node-lease", metav1.GetOptions{})
		return err == nil
	})
	return err
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
