package cache

import (
	"bytes"
	"io"
	"net/http"
	"testing"
)

// invariant 2: a LIST that breaks off on the way leaves the list before.
func TestInvariant02_AListThatBreaksOffChangesNothing(t *testing.T) {
	t.Parallel()
	for _, accept := range []string{protobuf, asJSON} {
		t.Run(accept, func(t *testing.T) {
			t.Parallel()
			h, s := newHub(t), newSpace(t)
			s.large("large", 10, 50_000)
			before := h.node.get(t, s.path, accept)
			s.remove("large-003")
			s.create("new")
			for _, after := range []int64{20_000, 250_000, 450_000} {
				before = h.breakList(t, s.path, accept, after, before)
			}
			h.cut()
			if after := h.node.get(t, s.path, accept); !bytes.Equal(after.body, before.body) {
				t.Errorf("the list is at version %s, was at %s", after.listing(t).version, before.listing(t).version)
			}
		})
	}
}

// breakList has a list break off after so many bytes. It returns the last one that came whole, which may
// be another than before: the break can meet another connection of the hub's.
func (h *hub) breakList(t *testing.T, path, accept string, after int64, before answer) answer {
	t.Helper()
	for range 5 {
		h.link.ResetAfter(after)
		a := h.node.try(t.Context(), request{path: path, accept: accept})
		h.awaitOnline()
		if a.err != nil || a.status != http.StatusOK {
			return before
		}
		before = a
	}
	t.Fatalf("a list that was to be cut after %d bytes came whole five times: %d bytes", after, len(before.body))
	return before
}

// invariant 2: a client that leaves in the middle of a LIST leaves the list before,
// too, or a whole new one if the hub has read on.
func TestInvariant02_AClientThatLeavesChangesNothing(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.large("large", 20, 100_000)
	h.node.servedList(t, s.path, protobuf)
	s.remove("large-003")
	for range 5 {
		res, err := h.node.open(t.Context(), request{path: s.path, accept: protobuf})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.CopyN(io.Discard, res.Body, 100_000)
		res.Body.Close()
	}
	h.cut()
	h.node.servedList(t, s.path, protobuf)
}
