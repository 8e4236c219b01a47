package cache

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// a watch that is open when the cloud goes is held, with bookmarks if the client takes
// them, ends when its time is over, and goes on where it was when the cloud is back.
func TestAWatchOutlivesOutages(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 3)
	l := h.node.servedList(t, s.path, protobuf)
	w := h.node.watch(t, with(s.path, watchQuery+"&resourceVersion="+l.version), protobuf)
	other := h.node.watch(t, with(s.named("c-001"), watchListQuery), asJSON)
	other.initial(t)
	for i, lose := range []func(){h.cut, func() { h.blackHole() }, h.cut} {
		lose()
		s.change("c-001", fmt.Sprint("outage ", i))
		name := fmt.Sprintf("new-%d", i)
		s.create(name)
		s.remove(name)
		w.silent(t, quiet)
		h.connect()
		w.expect(t, watch.Modified, "c-001")
		w.expect(t, watch.Added, name)
		w.expect(t, watch.Deleted, name)
		other.expect(t, watch.Modified, "c-001")
	}
}

// offline, a watch that is held shows that it lives, and ends when its time is over.
func TestAHeldWatchEndsInTime(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	l := h.node.servedList(t, s.path, protobuf)
	h.cut()
	began := time.Now()
	w := h.node.watch(t, with(s.path, watchQuery+"&timeoutSeconds=3&resourceVersion="+l.version), protobuf)
	for deadline := time.After(patience); ; {
		e := w.nextBefore(t, deadline)
		if e.err != nil {
			break
		}
		if e.kind != watch.Bookmark || e.version != l.version {
			t.Fatalf("got %+v", e)
		}
	}
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("a watch with timeoutSeconds=3 has ended after %v already", took)
	}
}

// without allowWatchBookmarks there is none.
func TestNoBookmarksForThoseWhoDoNotAsk(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	l := h.node.servedList(t, s.path, protobuf)
	h.cut()
	w := h.node.watch(t, with(s.path, "watch=true&timeoutSeconds=3&resourceVersion="+l.version), protobuf)
	if e := w.next(t); e.err == nil {
		t.Errorf("got %+v", e)
	}
}
