package cache

import (
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// quiet is how long a test listens where nothing may come.
const quiet = time.Second

// invariant 7: GET, PUT and PATCH at a higher version do not move that of the list; what
// came in between arrives after the return of the cloud, a deletion among it.
func TestInvariant07_SingleObjectsDoNotMoveTheList(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 4)
	list := h.node.servedList(t, s.path, protobuf)
	s.remove("c-000")
	s.change("c-001", "changed behind the hub's back")
	patch := h.node.do(t, request{method: http.MethodPatch, path: s.one("c-002"), accept: protobuf,
		contentType: "application/merge-patch+json", body: []byte(`{"data":{"value":"patched"}}`)})
	if patch.status != http.StatusOK {
		t.Fatal(patch)
	}
	s.change("c-003", "changed before it was read")
	newest := h.node.get(t, s.one("c-003"), protobuf)

	h.cut()
	if l := h.node.servedList(t, s.path, protobuf); l.version != list.version {
		t.Errorf("the list has moved from version %s to %s", list.version, l.version)
	}
	if got := h.node.get(t, s.one("c-002"), protobuf); !slices.Equal(got.body, patch.body) {
		t.Errorf("GET says %v; want what the PATCH was answered with", got)
	}
	if got := h.node.get(t, s.one("c-003"), protobuf); !slices.Equal(got.body, newest.body) {
		t.Errorf("GET says %v; want the newest that was read", got)
	}
	w := h.node.watch(t, with(s.path, watchQuery+"&resourceVersion="+list.version), protobuf)
	w.silent(t, quiet/4)
	h.connect()
	w.expect(t, watch.Deleted, "c-000")
	w.expect(t, watch.Modified, "c-001")
	w.expect(t, watch.Modified, "c-002")
	w.expect(t, watch.Modified, "c-003")
}

// invariant 9: a WatchList online is enough for LIST and WatchList offline.
func TestInvariant09_AWatchListIsEnough(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 5)
	w := h.node.watch(t, with(s.path, watchListQuery), protobuf)
	items, _ := w.initial(t)
	if len(items) != 6 {
		t.Fatalf("online the WatchList has %v", items)
	}
	s.change("c-001", "changed")
	w.expect(t, watch.Modified, "c-001")
	s.remove("c-002")
	last := w.expect(t, watch.Deleted, "c-002").version
	check := func(when string) {
		t.Helper()
		l := h.node.servedList(t, s.path, protobuf)
		if l.version != last || len(l.items) != 5 {
			t.Errorf("%s the LIST is at %s with %v; want %s", when, l.version, l.names(), last)
		}
		again := h.node.watch(t, with(s.path, watchListQuery), protobuf)
		items, version := again.initial(t)
		if version != last || len(items) != len(l.items) {
			t.Errorf("%s the WatchList is at %s with %v; want %s with %v", when, version, items, last, l.names())
		}
		for name, version := range items {
			if l.items[s.name+"/"+name] != version {
				t.Errorf("%s the WatchList has %s at %s", when, name, version)
			}
		}
		again.silent(t, quiet/4)
	}
	h.cut()
	check("offline")
	h.stop()
	h.start()
	check("after a restart")
}

// invariant 10: offline, a watch from a version before the known one is refused with
// 410; from "" and "0" it begins with what there is; from the known one it is held
// open; from one above it is held silently.
func TestInvariant10_OfflineWatches(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 3)
	old := h.node.servedList(t, s.path, protobuf).version
	s.change("c-001", "changed")
	l := h.node.servedList(t, s.path, protobuf)
	h.cut()
	from := func(version string) string { return with(s.path, watchQuery+"&resourceVersion="+version) }
	h.node.watch(t, from(old), protobuf).tooOld(t)
	h.node.watch(t, from("1"), protobuf).tooOld(t)
	held := h.node.watch(t, from(l.version), protobuf)
	above := h.node.watch(t, from(strconv.FormatUint(number(t, l.version)+1, 10)), protobuf)
	begun := []*stream{h.node.watch(t, with(s.path, watchQuery), protobuf), h.node.watch(t, from("0"), protobuf)}
	for _, w := range begun {
		got := map[string]string{}
		for range l.items {
			e := w.change(t)
			if e.kind != watch.Added {
				t.Errorf("want ADDED; got %+v", e)
			}
			got[s.name+"/"+e.name] = e.version
		}
		if d := differences(got, l.items); d != differences(l.items, l.items) {
			t.Error(d)
		}
	}
	for _, w := range append(begun, held, above) {
		w.silent(t, quiet/4)
	}
	h.connect()
	s.change("c-002", "the cloud is back")
	version := s.change("c-002", "and again")
	for _, w := range append(begun, held, above) {
		// The hub lists for the one that is above, and may send to the others
		// both changes at once.
		for w.expect(t, watch.Modified, "c-002").version != version {
		}
	}
}
