package cache

import (
	"testing"
)

// invariant 3: a LIST in pages is, offline, all of them, at once.
func TestInvariant03_AllPagesAreOneList(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 24) // and kube-root-ca.crt
	pages, version := readPages(t, h.node, s.path+"?limit=10", protobuf)
	if pages != 3 {
		t.Fatalf("%d pages", pages)
	}
	h.cut()
	for _, path := range []string{s.path, s.path + "?limit=10", s.path + "?resourceVersion=0", s.path + "?limit=500&resourceVersion=0"} {
		a := h.node.get(t, path, protobuf)
		if l := a.listing(t); len(l.items) != 25 || l.version != version || l.next != "" {
			t.Errorf("%s: %d items at %s, continue %q; want 25 at %s", path, len(l.items), l.version, l.next, version)
		}
		a.served(t, s.path, protobuf)
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
