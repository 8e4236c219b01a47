package cache

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// invariant 4: a LIST of a name that does not exist removes nothing else, and is
// known to be empty.
func TestInvariant04_AnEmptyListOfANameRemovesNothingElse(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 3)
	before := h.node.get(t, s.path, protobuf)
	object := h.node.get(t, s.one("c-001"), protobuf)
	h.node.servedList(t, s.named("c-002"), protobuf)
	if l := h.node.servedList(t, s.named("nobody"), protobuf); len(l.items) != 0 {
		t.Fatalf("the list has %v", l.names())
	}
	h.cut()
	if after := h.node.get(t, s.path, protobuf); !bytes.Equal(after.body, before.body) {
		t.Errorf("the list is not what it was: %v", after)
	}
	if after := h.node.get(t, s.one("c-001"), protobuf); !bytes.Equal(after.body, object.body) {
		t.Errorf("the object is not what it was: %v", after)
	}
	if l := h.node.servedList(t, s.named("c-002"), protobuf); len(l.items) != 1 {
		t.Errorf("the list of one name has %v", l.names())
	}
	if l := h.node.servedList(t, s.named("nobody"), protobuf); len(l.items) != 0 {
		t.Errorf("the list of a name that does not exist has %v", l.names())
	}
	h.node.refused(t, request{path: s.named("somebody-else"), accept: protobuf}, http.StatusServiceUnavailable)
}

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

// invariant 5: what leaves a selector leaves its set: the apiserver says DELETED then.
func TestInvariant05_WhatLeavesASelectorLeavesItsSet(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 2, "color=red")
	red, blue := s.selected("color=red"), s.selected("color=blue")
	w := h.node.watch(t, with(red, watchQuery+"&resourceVersion="+h.node.servedList(t, red, protobuf).version), protobuf)
	x := h.node.watch(t, with(blue, watchQuery+"&resourceVersion="+h.node.servedList(t, blue, protobuf).version), protobuf)
	if _, err := s.maps.Patch(t.Context(), "c-001", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"color":"blue"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.expect(t, watch.Deleted, "c-001")
	x.expect(t, watch.Added, "c-001")
	h.cut()
	if l := h.node.servedList(t, red, protobuf); !slices.Equal(l.names(), []string{"c-000"}) {
		t.Errorf("red has %v", l.names())
	}
	if l := h.node.servedList(t, blue, protobuf); !slices.Equal(l.names(), []string{"c-001"}) {
		t.Errorf("blue has %v", l.names())
	}
}

// invariant 6: the version of an offline LIST is that of the last list, event or
// bookmark, never the highest among its items.
func TestInvariant06_TheVersionOfAList(t *testing.T) {
	t.Parallel()
	for _, accept := range []string{protobuf, asJSON} {
		t.Run(accept, func(t *testing.T) {
			t.Parallel()
			h, s, other := newHub(t), newSpace(t), newSpace(t)
			s.fill("c", 3)
			moved := other.create("elsewhere").ResourceVersion // the store goes on, the list's items do not
			list := h.node.servedList(t, s.path, accept)
			offline := func(what, want string) {
				t.Helper()
				h.cut()
				if got := h.node.servedList(t, s.path, accept).version; got != want {
					t.Errorf("after %s the list is at version %s, want %s", what, got, want)
				}
				h.connect()
			}
			if number(t, list.version) < number(t, moved) {
				t.Fatalf("the list is at %s", list.version)
			}
			offline("a LIST", list.version)

			w := h.node.watch(t, with(s.path, watchQuery+"&resourceVersion="+list.version), accept)
			s.change("c-001", "changed")
			offline("a change", w.expect(t, watch.Modified, "c-001").version)
			s.remove("c-002")
			deleted := w.expect(t, watch.Deleted, "c-002")
			offline("a deletion", deleted.version)

			other.change("elsewhere", "again") // and the end of initial events is a bookmark above all of them
			items, version := h.node.watch(t, with(s.path, watchListQuery), accept).initial(t)
			for name, v := range items {
				if number(t, v) >= number(t, version) {
					t.Fatalf("%s is at %s, the bookmark at %s", name, v, version)
				}
			}
			offline("a WatchList", version)
		})
	}
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

// namespaces are parts of a query: what one has says nothing of the other, or of all.
func TestNamespacesAreApart(t *testing.T) {
	t.Parallel()
	h, s, other := newHub(t), newSpace(t), newSpace(t)
	s.create("a")
	all := "/api/v1/configmaps?labelSelector=a"
	h.node.servedList(t, s.path, protobuf)
	h.node.servedList(t, all, protobuf)
	h.cut()
	h.node.servedList(t, s.path, protobuf)
	h.node.servedList(t, all, protobuf)
	for _, path := range []string{other.path, "/api/v1/configmaps", other.path + "?labelSelector=a"} {
		h.node.refused(t, request{path: path, accept: protobuf}, http.StatusServiceUnavailable)
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
