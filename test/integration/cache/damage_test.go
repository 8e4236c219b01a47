package cache

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"os"
	"testing"
)

// invariant 15: a record that is damaged is refused or read again, and no list is
// silently short.
func TestInvariant15_ADamagedRecord(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 5)
	paths := []string{s.path, s.named("c-002"), s.named("c-004")}
	read := func() {
		t.Helper()
		for _, path := range paths {
			h.node.get(t, path, protobuf)
		}
		h.node.get(t, s.one("c-002"), protobuf)
	}
	read()
	h.stop()
	file := largestFile(t, h.cacheDir())
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	marker := []byte("first of c-002")
	if bytes.Count(content, marker) == 0 {
		t.Fatal("the object is not found in the file")
	}
	damaged := bytes.ReplaceAll(content, marker, []byte("worst of c-002"))
	if err := os.WriteFile(file, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	h.cut()
	h.start()
	for _, path := range []string{s.path, s.named("c-002"), s.one("c-002")} {
		h.node.refused(t, request{path: path, accept: protobuf}, http.StatusServiceUnavailable)
	}
	if w := h.node.watch(t, with(s.path, watchListQuery), protobuf); w.status == http.StatusOK {
		for { // it has to end with an error, not with the bookmark
			e := w.next(t)
			if e.end {
				t.Error("a WatchList without the damaged object is said to be whole")
			}
			if e.err != nil || e.end {
				break
			}
		}
	}
	h.node.servedList(t, s.named("c-004"), protobuf) // the rest is as it was
	h.connect()
	read()
	h.cut()
	if known := h.checkViews(t, paths, protobuf); known != len(paths) {
		t.Errorf("after it was read again, %d of %d lists are there", known, len(paths))
	}
}

// invariant 15: the same for bytes flipped anywhere, several in a row, some of which
// damage more than a record.
func TestInvariant15_FlippedBytesAnywhere(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 30, "parity=0")
	paths := []string{s.path, s.selected("parity=0"), s.named("c-004")}
	lost := 0
	for round := range 12 {
		for _, path := range paths {
			h.node.get(t, path, protobuf)
		}
		h.stop()
		file := largestFile(t, h.cacheDir())
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for range 1 + rand.IntN(20) {
			at := rand.IntN(len(content))
			for i := at; i < min(at+1+rand.IntN(16), len(content)); i++ {
				content[i] ^= byte(1 + rand.IntN(255))
			}
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		h.cut()
		h.start()
		known := h.checkViews(t, paths, protobuf)
		lost += len(paths) - known
		h.connect()
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	t.Logf("%d of %d lists were given up", lost, 12*len(paths))
}
