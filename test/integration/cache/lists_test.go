package cache

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// invariant 5: two selectors of one client are two sets, also after a restart of the
// hub, in order and by a crash.
func TestInvariant05_TwoSelectorsAreTwoSets(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("red", 3, "color=red")
	s.fill("blue", 2, "color=blue")
	s.create("both", "color=red", "also=blue")
	red, blue, named := s.selected("color=red"), s.selected("color=blue"), s.named("both")
	want := map[string][]string{
		red:   {"both", "red-000", "red-001", "red-002"},
		blue:  {"blue-000", "blue-001"},
		named: {"both"},
	}
	check := func(when string) {
		t.Helper()
		for path, names := range want {
			if l := h.node.servedList(t, path, protobuf); !slices.Equal(l.names(), names) {
				t.Errorf("%s, %s has %v; want %v", when, path, l.names(), names)
			}
		}
		h.node.refused(t, request{path: s.path, accept: protobuf}, http.StatusServiceUnavailable)
	}
	for path := range want {
		h.node.servedList(t, path, protobuf)
	}
	h.cut()
	check("offline")
	h.stop()
	h.start()
	check("after a restart")
	h.kill()
	h.start()
	check("after a crash")
}

// a LIST that asks for more than is known is answered as an apiserver does that is not
// that far: client-go then asks without a version.
func TestAListAboveTheKnownVersion(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	l := h.node.servedList(t, s.path, protobuf)
	h.cut()
	above := strconv.FormatUint(number(t, l.version)+1000, 10)
	for _, query := range []string{"?resourceVersion=" + above, "?resourceVersionMatch=NotOlderThan&resourceVersion=" + above} {
		a := h.node.refused(t, request{path: s.path + query, accept: asJSON}, http.StatusGatewayTimeout)
		if !strings.Contains(string(a.body), string(metav1.CauseTypeResourceVersionTooLarge)) {
			t.Errorf("the answer does not give ResourceVersionTooLarge as its cause: %v", a)
		}
	}
	for _, query := range []string{"", "?resourceVersion=0", "?resourceVersion=" + l.version, "?resourceVersion=1", "?resourceVersionMatch=NotOlderThan&resourceVersion=" + l.version} {
		h.node.do(t, request{path: s.path + query, accept: protobuf}).served(t, s.path, protobuf)
	}
}

// lists of everything, of many kinds, are what the apiserver has served, byte for byte.
func TestListsOfAllKindsOffline(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	paths := []string{
		"/api/v1/namespaces/kube-system/serviceaccounts", "/api/v1/namespaces/kube-system/secrets", "/api/v1/services",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/scheduling.k8s.io/v1/priorityclasses",
		"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", "/apis/apps/v1/daemonsets", "/apis/node.k8s.io/v1/runtimeclasses",
		"/apis/storage.k8s.io/v1/csidrivers",
	}
	for _, path := range paths {
		for _, accept := range []string{protobuf, asJSON} {
			h.node.get(t, path, accept)
		}
	}
	h.cut()
	for _, path := range paths {
		for _, accept := range []string{protobuf, asJSON} {
			t.Run(fmt.Sprint(path, " ", accept), func(t *testing.T) { h.node.servedList(t, path, accept) })
		}
	}
}
