package cache

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"slices"
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

// invariant 2: the same for what a real apiserver cannot be made to send: a body that
// ends cleanly, but too early, and gzip that is broken or too short.
func TestInvariant02_ABadBodyChangesNothing(t *testing.T) {
	t.Parallel()
	deflated := func(body []byte) []byte {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, _ = w.Write(body)
		_ = w.Close()
		return out.Bytes()
	}
	for _, mediaType := range []string{protobuf, asJSON} {
		newer := encode(t, fakeList(200, 50, ""), mediaType)
		flipped := deflated(newer)
		flipped[len(flipped)/2] ^= 0xff
		checksum := deflated(newer)
		checksum[len(checksum)-6] ^= 0xff // of the CRC at the end
		for _, c := range []struct {
			name  string
			body  []byte
			gzip  bool
			abort bool // instead of a clean end
		}{
			{name: "cut in an item, clean end", body: newer[:len(newer)*2/3]},
			{name: "cut one byte before the end, clean end", body: newer[:len(newer)-2]},
			{name: "cut before the first item, clean end", body: newer[:12]},
			{name: "whole, then aborted", body: newer, abort: true},
			{name: "whole, then more", body: append(slices.Clone(newer), `{"more":1}`...)},
			{name: "gzip cut in the middle", body: deflated(newer)[:len(deflated(newer))/2], gzip: true},
			{name: "gzip without its last bytes", body: deflated(newer)[:len(deflated(newer))-4], gzip: true},
			{name: "gzip with a wrong checksum", body: checksum, gzip: true},
			{name: "gzip with a wrong byte", body: flipped, gzip: true},
			{name: "not gzip at all", body: newer, gzip: true},
		} {
			t.Run(mediaType+", "+c.name, func(t *testing.T) {
				t.Parallel()
				f := newFake(t)
				f.script(answering(t, fakeList(100, 50, ""), mediaType), nil)
				h := newHubBefore(t, f)
				before := h.node.get(t, fakeMaps, mediaType)
				f.script(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", mediaType)
					if c.gzip {
						w.Header().Set("Content-Encoding", "gzip")
					}
					_, _ = w.Write(c.body)
					if c.abort {
						_ = http.NewResponseController(w).Flush()
						panic(http.ErrAbortHandler)
					}
				}, nil)
				a := h.node.try(t.Context(), request{path: fakeMaps, accept: mediaType, gzip: true})
				if !c.abort && !bytes.Equal(a.body, c.body) {
					t.Errorf("the client got %d bytes of the %d that were sent: %v", len(a.body), len(c.body), a.err)
				}
				h.cut()
				if after := h.node.get(t, fakeMaps, mediaType); !bytes.Equal(after.body, before.body) {
					t.Errorf("the list is not what it was: %v", after)
				}
			})
		}
	}
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
