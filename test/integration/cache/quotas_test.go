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
