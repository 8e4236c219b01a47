package cache

import (
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// a hub that stood still, as on a machine that hangs, has not listened meanwhile, and
// takes nothing for lost: not with a watch open, nor with requests on their way.
func TestAHubThatStoodStillHasLostNothing(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 3)
	l := h.node.servedList(t, s.path, protobuf)
	w := h.node.watch(t, with(s.path, watchQuery+"&resourceVersion="+l.version), protobuf)
	h.link.SetDelay(300 * time.Millisecond) // each way, so that they are on their way
	reader := h.as(s.account("reader"))     // whose requests have a connection of their own
	asked := make(chan answer)
	for _, c := range []*client{h.node, reader} {
		go func() { asked <- c.try(t.Context(), request{path: s.path, accept: protobuf}) }()
	}
	<-time.After(200 * time.Millisecond)
	h.Freeze()
	<-time.After(4 * time.Second) // longer than any silence may last
	h.Cont()
	for range 2 {
		if a := <-asked; a.status != http.StatusOK {
			t.Errorf("a request that was under way: %v", a)
		}
	}
	h.link.SetDelay(0)
	s.change("c-001", "changed")
	w.expect(t, watch.Modified, "c-001")
	if h.logged("cannot be reached") {
		t.Error("the cloud was taken for lost")
	}
}
