package cache

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// invariant 3: a LIST in pages is, offline, all of them, at once.
func TestInvariant03_AllPagesAreOneList(t *testing.T) {
	t.Parallel()
	for _, accept := range []string{protobuf, asJSON} {
		t.Run(accept, func(t *testing.T) {
			t.Parallel()
			h, s := newHub(t), newSpace(t)
			s.fill("c", 24) // and kube-root-ca.crt
			pages, version := readPages(t, h.node, s.path+"?limit=10", accept)
			if pages != 3 {
				t.Fatalf("%d pages", pages)
			}
			h.cut()
			for _, path := range []string{s.path, s.path + "?limit=10", s.path + "?resourceVersion=0", s.path + "?limit=500&resourceVersion=0"} {
				a := h.node.get(t, path, accept)
				if l := a.listing(t); len(l.items) != 25 || l.version != version || l.next != "" {
					t.Errorf("%s: %d items at %s, continue %q; want 25 at %s", path, len(l.items), l.version, l.next, version)
				}
				a.served(t, s.path, accept)
			}
		})
	}
}

// readPages lists page by page, and returns how many there were and of what version.
func readPages(t *testing.T, c *client, path, accept string) (pages int, version string) {
	t.Helper()
	for next := path; next != ""; pages++ {
		l := c.get(t, next, accept).listing(t)
		version, next = l.version, ""
		if l.next != "" {
			next = path + "&continue=" + l.next
		}
	}
	return pages, version
}

// invariant 3: a LIST in pages that does not get to its last is none.
func TestInvariant03_AMissingPageLeavesTheListBefore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		second http.HandlerFunc
		lost   bool // the cloud, after the first page
	}{
		{name: "the cloud is lost", lost: true},
		{name: "500", second: failing(http.StatusInternalServerError, metav1.StatusReasonInternalError)},
		{name: "410, the token is too old", second: failing(http.StatusGone, metav1.StatusReasonExpired)},
		{name: "an aborted page", second: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", protobuf)
			_, _ = io.WriteString(w, "k8s\x00")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}},
		{name: "nobody asks for it", second: nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.script(answering(t, fakeList(100, 5, ""), protobuf), nil)
			h := newHubBefore(t, f)
			before := h.node.get(t, fakeMaps, protobuf)
			first := answering(t, fakeList(200, 3, "token"), protobuf)
			f.script(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("continue") == "" {
					first(w, r)
					return
				}
				c.second(w, r)
			}, nil)
			if l := h.node.get(t, fakeMaps+"?limit=3", protobuf).listing(t); l.next != "token" {
				t.Fatalf("the first page is %v", l)
			}
			second := request{path: fakeMaps + "?limit=3&continue=token", accept: protobuf}
			switch {
			case c.lost:
				h.cut()
				if a := h.node.do(t, second); a.status != http.StatusServiceUnavailable && a.status != http.StatusGone {
					t.Errorf("the second page, with the cloud away: %v", a)
				}
			case c.second != nil:
				h.node.try(t.Context(), second)
			}
			h.cut()
			if after := h.node.get(t, fakeMaps, protobuf); !bytes.Equal(after.body, before.body) {
				t.Errorf("the list is not what it was: %v", after)
			}
		})
	}
}

// invariant 3: pages of two readers at once do not get mixed up.
func TestInvariant03_PagesOfTwoReadersAtOnce(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 14)
	one := h.node.get(t, s.path+"?limit=5", protobuf).listing(t)
	s.remove("c-001")
	s.create("c-100")
	two := h.node.get(t, s.path+"?limit=5", protobuf).listing(t)
	for one.next != "" || two.next != "" {
		if one.next != "" {
			one = h.node.get(t, s.path+"?limit=5&continue="+one.next, protobuf).listing(t)
		}
		if two.next != "" {
			two = h.node.get(t, s.path+"?limit=5&continue="+two.next, protobuf).listing(t)
		}
	}
	h.cut()
	h.node.servedList(t, s.path, protobuf)
}
