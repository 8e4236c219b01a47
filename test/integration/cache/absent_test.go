package cache

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unavailable fails the test unless a is what a client gets for what was never read:
// 503, and a Status that describes in words what is the matter.
func (a answer) unavailable(t *testing.T) {
	t.Helper()
	if a.status != http.StatusServiceUnavailable {
		t.Errorf("want 503; got %v", a)
		return
	}
	var status metav1.Status
	if err := json.Unmarshal(a.body, &status); err != nil || status.Kind != "Status" || status.Code != http.StatusServiceUnavailable || status.Reason != metav1.StatusReasonServiceUnavailable {
		t.Errorf("the body is no Status of 503: %v, %s", err, a.body)
	}
	for _, words := range []string{"the cloud cannot be reached", "never read through this hub"} {
		if !strings.Contains(status.Message, words) {
			t.Errorf("the message does not say %q: %s", words, status.Message)
		}
	}
}

// invariant 11: what was never cached is 503, neither 404 nor an empty 200. So it is for the very
// request that finds the cloud gone, and from a hub that starts without the cloud.
func TestInvariant11_NeverCachedIs503(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 2, "color=red")
	h.node.refused(t, request{path: s.one("nobody"), accept: protobuf}, http.StatusNotFound) // is no proof later
	h.node.get(t, s.one("c-000"), protobuf)
	check := func(when string) {
		for _, path := range []string{
			s.one("c-001"), s.one("nobody"), // neither was a list that would prove anything
			s.path, s.path + "?resourceVersion=0", s.path + "?limit=500", s.selected("color=red"), s.named("c-000"),
			"/api/v1/configmaps", "/api/v1/pods", "/api/v1/nodes/" + h.name, "/apis/nowhere.example/v1/things",
			s.path + "?watch=true", s.path + "?watch=true&resourceVersion=0", s.path + "?watch=true&resourceVersion=1",
			with(s.path, watchListQuery), with(s.named("c-000"), watchListQuery),
			"/api/v1/namespaces/" + s.name + "/pods/p/log",
		} {
			for _, accept := range []string{protobuf, asJSON, kubelet, table + "," + asJSON} {
				t.Run(when+" "+path+" "+accept, func(t *testing.T) {
					h.node.do(t, request{path: path, accept: accept}).unavailable(t)
				})
			}
		}
	}
	h.cut()
	check("offline")
	h.stop()
	h.start()
	check("after a restart")
}

// a GET is answered with 404 only where a list that covers the name proves that there
// is no such object.
func TestA404HasToBeProven(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 2)
	h.node.servedList(t, s.path, protobuf)
	h.cut()
	a := h.node.refused(t, request{path: s.one("nobody"), accept: asJSON}, http.StatusNotFound)
	var status metav1.Status
	if err := json.Unmarshal(a.body, &status); err != nil || status.Reason != metav1.StatusReasonNotFound || status.Details == nil || status.Details.Name != "nobody" {
		t.Errorf("want the Status of an apiserver; got %v", a)
	}
	// A list has what a GET of each would return, but for kind and apiVersion.
	want := env.direct.get(t, s.one("c-001"), protobuf)
	if got := h.node.get(t, s.one("c-001"), protobuf); !bytes.Equal(got.body, want.body) {
		t.Errorf("GET of what only a list has: %v", got)
	}
	h.connect()
	other := newSpace(t)
	other.fill("c", 2, "color=red")
	h.node.servedList(t, other.selected("color=red"), protobuf)
	h.node.servedList(t, other.named("nobody"), protobuf)
	h.cut()
	h.node.do(t, request{path: other.one("somebody"), accept: protobuf}).unavailable(t) // it may have no such label
	h.node.refused(t, request{path: other.one("nobody"), accept: protobuf}, http.StatusNotFound)
	h.node.get(t, other.one("c-001"), protobuf)
}
