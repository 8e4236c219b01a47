package cache

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// flood sends so many requests, some at the same time, and fails the test unless all of
// them are answered with 200: what is refused is never kept. A flood may keep the machine so
// busy that the apiserver counts as lost for a moment; what breaks then is sent again.
func (c *client) flood(t *testing.T, n int, of func(i int) request) {
	t.Helper()
	var next, failed atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				var a answer
				if !poll.Within(time.Minute, func() bool {
					a = c.try(t.Context(), of(i))
					return a.status == http.StatusOK
				}) && failed.Add(1) == 1 {
					t.Errorf("request %d of the flood: %v", i, a)
				}
			}
		})
	}
	all.Wait()
}

// #17: one user lists with more selectors than there can be views. The others keep what
// they watch, and what they have read: another account, a program of the node, kubelet.
func TestAFloodOfListsEvictsNothingOfOtherUsers(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.create("c")
	h.makeNode()
	victim, flooder := h.as(s.account("victim")), h.as(s.account("flooder"))
	kubeletPods := "/api/v1/pods?fieldSelector=spec.nodeName%3D" + h.name
	h.node.get(t, kubeletPods, protobuf)
	h.node.get(t, s.selected("program=ofTheNode"), protobuf)
	victim.get(t, s.one("c"), asJSON)
	watched := victim.servedList(t, s.path, protobuf)
	w := victim.watch(t, with(s.path, watchQuery+"&resourceVersion="+watched.version), protobuf)
	s.create("d")
	w.expect(t, watch.Added, "d")

	const lists = 4600 // more than maxViews
	flooder.flood(t, lists, func(i int) request {
		return request{path: s.selected(fmt.Sprint("flood=l", i)), accept: protobuf}
	})
	flooder.get(t, s.path, protobuf)
	if n, _ := h.metric("edgehub_cache_evictions_total"); n == 0 {
		t.Error("nothing was evicted: this test shows nothing")
	}

	s.create("e")
	w.expect(t, watch.Added, "e")
	h.lose()
	for range 2 {
		if l := victim.servedList(t, s.path, protobuf); len(l.items) != len(watched.items)+2 {
			t.Errorf("the victim's list has %v", l.names())
		}
		victim.get(t, s.one("c"), asJSON)
		h.node.get(t, kubeletPods, protobuf)
		h.node.get(t, s.selected("program=ofTheNode"), protobuf)
		flooder.servedList(t, s.path, protobuf) // what it has read last it has, too
		h.stop()
		h.start()
	}
}

// #17: many accounts of one namespace, none of which reads as much as the victim does, list
// with more selectors than there can be views. An account of another namespace and the node
// keep all that they have read, since the accounts of a namespace count together.
func TestAFloodByManyAccountsEvictsNothingOfOtherNamespaces(t *testing.T) {
	t.Parallel()
	h, s, flooders := newHub(t), newSpace(t), newSpace(t)
	victim := h.as(s.account("victim"))
	const accounts, each, lists = 50, 90, 100 // accounts × each is more than maxViews
	var flood []*client
	for _, token := range flooders.accounts(accounts) {
		flood = append(flood, h.as(token))
	}
	selected := func(i int) request { return request{path: s.selected(fmt.Sprint("own=l", i)), accept: protobuf} }
	victim.flood(t, lists, selected)
	h.node.flood(t, 3*lists, selected)
	var all sync.WaitGroup
	for _, c := range flood {
		all.Go(func() {
			c.flood(t, each, func(i int) request {
				return request{path: flooders.selected(fmt.Sprint("flood=l", i)), accept: protobuf}
			})
		})
	}
	all.Wait()
	if n, _ := h.metric("edgehub_cache_evictions_total"); n == 0 {
		t.Error("nothing was evicted: this test shows nothing")
	}
	h.lose()
	victim.flood(t, lists, selected)
	h.node.flood(t, 3*lists, selected)
}

// #17: one user reads discovery in more ways than are kept. The query is nothing that an
// apiserver looks at, the Accept header is.
func TestAFloodOfDiscoveryEvictsNothingOfOtherUsers(t *testing.T) {
	t.Parallel()
	discovery := []string{"/version", "/api", "/apis", "/api/v1", "/apis/apps/v1", "/openapi/v3"}
	for name, flood := range map[string]struct {
		n  int // more than are kept of all users
		of func(i int) request
	}{
		"by query":         {1200, func(i int) request { return request{path: fmt.Sprint("/version?x=", i)} }},
		"by Accept header": {1200, func(i int) request { return request{path: "/version", accept: fmt.Sprint("application/json,a/b", i)} }},
		"of large answers": {120, func(i int) request {
			return request{path: "/openapi/v3/apis/apps/v1", accept: fmt.Sprint("application/json,a/b", i)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, s := newHub(t), newSpace(t)
			victim, flooder := h.as(s.account("victim")), h.as(s.account("flooder"))
			for _, path := range discovery {
				victim.get(t, path, asJSON)
				h.node.get(t, path, asJSON)
			}
			flooder.flood(t, flood.n, flood.of)
			h.lose()
			for range 2 {
				for _, path := range discovery {
					victim.get(t, path, asJSON)
					h.node.get(t, path, asJSON)
				}
				h.stop()
				h.start()
			}
		})
	}
}

// #17: parameters that no apiserver looks at make no entry of their own.
func TestDiscoveryIsKeptWithoutWhatAnApiserverIgnores(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.node.get(t, "/version?x=1", asJSON)
	h.node.get(t, "/apis?timeout=32s", asJSON)
	h.lose()
	for _, path := range []string{"/version", "/version?x=2", "/apis", "/apis?timeout=10s&pretty=true"} {
		h.node.get(t, path, asJSON)
	}
}

// #17: of a parameter that is there twice an apiserver takes the first, and so does the
// hub. One that the hub does not know may be one that a newer apiserver does: an answer
// to it is neither kept nor given from the cache.
func TestListsAreKeptByTheParametersThatCount(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.create("even", "n=0")
	s.create("odd", "n=1")
	want := h.node.get(t, s.selected("n=1")+"&labelSelector=n%3D0", protobuf).listing(t)
	if names := want.names(); len(names) != 1 || names[0] != "odd" {
		t.Fatalf("the apiserver takes not the first: %v", names)
	}
	h.node.get(t, s.path+"?unheardOf=1", protobuf)
	h.lose()
	if got := h.node.servedList(t, s.selected("n=1"), protobuf); got.version != want.version {
		t.Errorf("the list is at %s, want %s", got.version, want.version)
	}
	h.node.refused(t, request{path: s.selected("n=0"), accept: protobuf}, http.StatusServiceUnavailable)
	h.node.refused(t, request{path: s.path, accept: protobuf}, http.StatusServiceUnavailable)
	h.node.refused(t, request{path: s.selected("n=1") + "&unheardOf=1", accept: protobuf}, http.StatusServiceUnavailable)
}
