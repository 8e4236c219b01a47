package view

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/wire"
)

func pods(user string) query.UserResource {
	return query.UserResource{User: user, Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
}

// readPods is as many pods as are kept, which the node has read by themselves: dead-n, at versions from 1000 on.
func readPods(s *Views) *resource {
	for i := range maxCopies {
		readPod(s, fmt.Sprint("dead-", i), fmt.Sprint(1000+i))
	}
	r := s.find(pods(query.NodeUser))
	r.unlock()
	return r
}

func readPod(s *Views, name, version string) {
	s.Keep(pods(query.NodeUser), &Read{
		Namespace: "ns", Name: name, Version: version, Type: wire.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		Repr: wire.Representation{Encoding: wire.Protobuf}, Bare: []byte("pod " + name), Own: true,
	})
}

// Objects that are read again and again stay, however old, and so do those that have just
// come: not the version decides which are no longer needed.
func TestWhatIsReadStays(t *testing.T) {
	dir := t.TempDir()
	s := newTestViews(t, dir, enough)
	r := readPods(s)
	readPod(s, "old", "7")
	if r.entries["ns/old"] == nil {
		t.Fatal("what has just been read is not kept")
	}
	for i := range 2 * maxCopies {
		readPod(s, fmt.Sprint("more-", i), fmt.Sprint(5000+i))
		if i%100 == 0 {
			readPod(s, "old", "7")
		}
	}
	if r.entries["ns/old"] == nil || r.copied > maxCopies || len(r.entries) > maxCopies {
		t.Errorf("what is read all the time is kept: %v, of %d", r.entries["ns/old"] != nil, len(r.entries))
	}
	if n := len(reopened(t, s, dir).objects[r.table()].entries); n != r.copied {
		t.Errorf("%d objects are on disk, want %d", n, r.copied)
	}
}

// What is needed stays, though nobody reads it, and nothing else does.
func TestObjectsThatAreNeededStay(t *testing.T) {
	s := newTestViews(t, t.TempDir(), enough)
	r := readPods(s)
	s.Acquire(keyOfPods(query.NodeUser)) // a kubelet runs
	s.Sweep()
	drop := func(needed string) {
		s.DropUnreadObjects(func(string, schema.GroupResource) bool { return true }, func(_, namespace, name string) bool {
			return namespace == "ns" && name == needed
		})
	}
	if drop(""); r.copied != maxCopies {
		t.Fatalf("%d objects are left of those that have just been read", r.copied)
	}
	readPod(s, "dead-7", "1007") // it is read again
	r.unused = unusedFor         // sweeps later
	drop("dead-8")
	s.Sweep()
	if r.entries["ns/dead-7"] == nil || r.entries["ns/dead-8"] == nil || r.copied != 2 {
		t.Errorf("the one that was read is there: %t, the one that is needed: %t, of %d", r.entries["ns/dead-7"] != nil, r.entries["ns/dead-8"] != nil, r.copied)
	}
}

// What was dropped is not on disk: a start does not find it, and does not complain that it cannot be read.
func TestWhatIsDroppedIsNotFoundByAStart(t *testing.T) {
	dir := t.TempDir()
	s := newTestViews(t, dir, enough)
	for _, user := range []string{query.NodeUser, "other"} {
		v := s.Acquire(keyOfPods(user))
		defer v.Release()
		fillPods(t, v, "", "100", true, map[string]string{"a": "50"})
	}
	if err := s.Disk.Flush(); err != nil {
		t.Fatal(err)
	}
	s.Evict(s.Find(keyOfPods("other")))
	if read := reopened(t, s, dir); len(read.views) != 1 {
		t.Errorf("%d views are on disk, want that of the node", len(read.views))
	}
}
