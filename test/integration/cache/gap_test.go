package cache

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// invariant 8: a watch that begins above what is known leaves a gap, in which there may
// have been deletions. What its client has seen since is newer than the list before, which
// is no answer any more until the hub has listed again.
func TestInvariant08_AStreamThatBeginsAboveIsAGap(t *testing.T) {
	t.Parallel()
	f, frames := newFake(t), make(chan []byte)
	f.script(answering(t, fakeList(100, 5, ""), asJSON), sending(asJSON, frames))
	h := newHubBefore(t, f)
	h.node.get(t, fakeMaps, asJSON)
	f.script(failing(http.StatusInternalServerError, metav1.StatusReasonInternalError), nil) // it cannot
	w := h.node.watch(t, fakeMaps+"?"+watchQuery+"&resourceVersion=150", asJSON)
	send(t, frames, modified(t, "c-001", 151))
	w.expect(t, watch.Modified, "c-001")
	h.cut()
	h.node.refused(t, request{path: fakeMaps, accept: asJSON}, http.StatusServiceUnavailable)
	f.script(answering(t, fakeList(160, 4, ""), asJSON), nil)
	h.connect()
	poll.Until(t, patience, "the hub has listed again", func() bool {
		a := h.node.try(t.Context(), request{path: fakeMaps, accept: asJSON})
		return a.status == http.StatusOK && a.listing(t).version == "160"
	})
	h.cut()
	if after := h.node.get(t, fakeMaps, asJSON).listing(t); after.version != "160" {
		t.Errorf("the list is at %s; want 160", after.version)
	}
}
