package cache

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// invariant 1: online, the body that a client gets is upstream's, byte for byte, after
// decompression; the first time, and when the cache has it already. Lists carry the
// version of the whole store, so nothing else may write to it meanwhile.
func TestInvariant01_OnlineBodiesAreUpstreams(t *testing.T) {
	h, s := newHub(t), newSpace(t)
	before := s.create("before", "n=1").ResourceVersion
	s.fill("c", 5, "n=2")
	s.large("large", 4, 100_000) // beyond the 128 KiB from which an apiserver compresses
	s.change("c-003", "changed")
	s.remove("c-004")
	paths := map[string]string{
		"GET":                        s.one("large-000"),
		"GET of what is not there":   s.one("nobody"),
		"LIST":                       s.path,
		"LIST from the watch cache":  s.path + "?resourceVersion=0",
		"LIST with a label selector": s.selected("n=2"),
		"LIST of one name":           s.named("before"),
		"first page of a LIST":       s.path + "?limit=3",
		"WATCH from a version":       s.path + "?watch=true&timeoutSeconds=1&resourceVersion=" + before,
		"WatchList":                  s.path + "?" + watchListQuery + "&timeoutSeconds=1",
	}
	for what, path := range paths {
		for _, accept := range []string{protobuf, asJSON, kubelet, table, metaList} {
			for _, compressed := range []bool{false, true} {
				for _, time := range []string{"first", "second"} {
					if strings.Contains(path, "watch") && time == "second" {
						continue // each costs seconds, and what they leave is read by the lists
					}
					t.Run(fmt.Sprintf("%s, %s, gzip %v, %s time", what, accept, compressed, time), func(t *testing.T) {
						t.Parallel()
						sameAsUpstream(t, h.node, request{path: path, accept: accept, gzip: compressed})
					})
				}
			}
		}
	}
}

// age matches the age of an object in a Table.
var age = regexp.MustCompile(`"\d+[smh][0-9smh]*"`)

// sameAsUpstream asks the apiserver, the hub and the apiserver again, until its own
// answers are equal: then nothing has changed meanwhile.
func sameAsUpstream(t *testing.T, c *client, r request) {
	t.Helper()
	for range 10 {
		first, through, last := env.direct.do(t, r), c.do(t, r), env.direct.do(t, r)
		plain := func(a answer) []byte {
			if r.accept == table {
				return age.ReplaceAll(inflated(t, a), []byte(`"age"`))
			}
			return inflated(t, a)
		}
		want, got := plain(first), plain(through)
		if !bytes.Equal(want, plain(last)) {
			continue
		}
		for _, name := range []string{"Content-Type", "Content-Encoding"} {
			w, g := first.header.Get(name), through.header.Get(name)
			if w == "gzip" && g == "" && strings.Contains(r.path, "sendInitialEvents") {
				continue // a watch that is kept goes on over an outage, in one encoding
			}
			if w != g {
				t.Errorf("%s is %q, upstream's %q", name, g, w)
			}
		}
		if through.status != first.status || !bytes.Equal(got, want) {
			t.Errorf("the hub says %d and %d bytes: %.200q\nthe apiserver %d and %d bytes: %.200q", through.status, len(got), got, first.status, len(want), want)
		}
		return
	}
	t.Fatal("the apiserver's own answers keep differing from each other")
}

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

// online, what is in no cache's power to answer goes through: writes, and what their
// answers say. They feed the reads of single objects.
func TestWritesThroughTheHubAreReadBackOffline(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	object := corev1.ConfigMap{}
	object.Kind, object.APIVersion, object.Name = "ConfigMap", "v1", "written"
	object.Data = map[string]string{"value": "posted"}
	a := h.node.do(t, request{method: http.MethodPost, path: s.path, accept: asJSON, contentType: asJSON, body: encode(t, &object, asJSON)})
	if a.status != http.StatusCreated {
		t.Fatal(a)
	}
	patch := h.node.do(t, request{method: http.MethodPatch, path: s.one("written"), accept: asJSON,
		contentType: "application/merge-patch+json", body: []byte(`{"data":{"value":"patched"}}`)})
	if patch.status != http.StatusOK {
		t.Fatal(patch)
	}
	h.cut()
	if got := h.node.get(t, s.one("written"), asJSON); !slices.Equal(got.body, patch.body) {
		t.Errorf("GET says %v; want what the PATCH was answered with: %v", got, patch)
	}
}
