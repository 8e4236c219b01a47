package cache

import (
	"bytes"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// invariant 8: a watch that begins above what is known leaves a gap, in which there may
// have been deletions: until the hub has listed, the list is the one before.
func TestInvariant08_AStreamThatBeginsAboveIsAGap(t *testing.T) {
	t.Parallel()
	f, frames := newFake(t), make(chan []byte)
	f.script(answering(t, fakeList(100, 5, ""), asJSON), sending(asJSON, frames))
	h := newHubBefore(t, f)
	before := h.node.get(t, fakeMaps, asJSON)
	f.script(failing(http.StatusInternalServerError, metav1.StatusReasonInternalError), nil) // it cannot
	w := h.node.watch(t, fakeMaps+"?"+watchQuery+"&resourceVersion=150", asJSON)
	send(t, frames, modified(t, "c-001", 151))
	w.expect(t, watch.Modified, "c-001")
	h.cut()
	if after := h.node.get(t, fakeMaps, asJSON); !bytes.Equal(after.body, before.body) {
		t.Errorf("the list is at %s; want what it was at 100", after.listing(t).version)
	}
}
