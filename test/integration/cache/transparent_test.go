package cache

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"
)

func inflated(t *testing.T, a answer) []byte {
	t.Helper()
	if a.header.Get("Content-Encoding") != "gzip" || len(a.body) == 0 { // a watch without events
		return a.body
	}
	r, err := gzip.NewReader(bytes.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// invariant 17: a Table passes, as a list and as a stream that does not stall, and
// leaves what is cached as it was.
func TestInvariant17_TablesPass(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.create("a")
	list := h.node.servedList(t, s.path, asJSON)
	w := h.node.watch(t, with(s.path, watchQuery+"&resourceVersion="+list.version), table)
	s.create("b")
	if e := w.next(t); e.err != nil || !strings.Contains(string(e.raw), `"Table"`) || !strings.Contains(string(e.raw), `"b"`) {
		t.Errorf("want b in a Table; got %q, %v", e.raw, e.err)
	}
	if a := h.node.get(t, s.path, table); !strings.Contains(string(a.body), `"Table"`) {
		t.Errorf("want a Table; got %v", a)
	}
	h.cut()
	if after := h.node.servedList(t, s.path, asJSON); after.version != list.version {
		t.Errorf("a Table has moved the list from version %s to %s", list.version, after.version)
	}
	if a := h.node.do(t, request{path: s.path, accept: table}); a.status != http.StatusNotAcceptable && a.status != http.StatusServiceUnavailable {
		t.Errorf("a Table, and nothing else: %v", a)
	}
	a := h.node.get(t, s.path, table+","+asJSON) // as kubectl asks
	if got := a.listing(t); got.version != list.version || len(got.items) != len(list.items) {
		t.Errorf("want the plain list in place of the Table; got %v", a)
	}
}
