package view

import (
	"fmt"
	"testing"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// fullSingleView is a Single view of pods that is full of dead-n, at versions from 1000 on.
func fullSingleView(s *Views) *View {
	key := keyOfPods(query.NodeUser)
	key.Single = true
	v := s.Acquire(key)
	defer v.Release()
	for i := range maxSingles {
		keepPod(v, fmt.Sprint("dead-", i), fmt.Sprint(1000+i))
	}
	return v
}

func keepPod(v *View, name, version string) {
	v.KeepSingle(wire.TypeMeta{APIVersion: "v1", Kind: "Pod"}, "ns/"+name, "", version, []byte("pod "+name))
}

// Objects that are read again and again stay, however old, and so do those that have just
// come: not the version decides which are no longer needed.
func TestWhatIsReadStaysAmongSingleObjects(t *testing.T) {
	s := newTestViews(t, t.TempDir(), enough)
	v := fullSingleView(s)
	keepPod(v, "old", "7")
	if _, ok := v.Member("ns/old"); !ok {
		t.Fatal("what has just been read is not kept")
	}
	for i := range 2 * maxSingles {
		keepPod(v, fmt.Sprint("more-", i), fmt.Sprint(5000+i))
		if i%100 == 0 {
			keepPod(v, "old", "7")
		}
	}
	if _, ok := v.Member("ns/old"); !ok || len(v.index) > maxSingles {
		t.Errorf("what is read all the time is kept: %v, of %d", ok, len(v.index))
	}
	if n := len(v.reads.last); n > maxSingles {
		t.Errorf("%d reads are remembered", n)
	}
	s.Disk.Flush()
	d, _ := s.Disk.Now()
	if _, members, err := d.Members(v.DiskID()); err != nil || len(members) != len(v.index) {
		t.Errorf("%d objects are on disk, want %d: %v", len(members), len(v.index), err)
	}
}

// What is needed stays, though nobody reads it, and nothing else does.
func TestSingleObjectsThatAreNeededStay(t *testing.T) {
	s := newTestViews(t, t.TempDir(), enough)
	v := fullSingleView(s)
	s.Acquire(keyOfPods(query.NodeUser)) // a kubelet runs
	s.Sweep()
	s.DropUnread(v, func(string, string) bool { return false })
	if len(v.index) != maxSingles {
		t.Fatalf("%d objects are left of those that have just been read", len(v.index))
	}
	keepPod(v, "dead-7", "1007") // it is read again
	v.unused = unusedFor         // sweeps later
	s.DropUnread(v, func(namespace, name string) bool { return namespace == "ns" && name == "dead-8" })
	s.Sweep()
	_, read := v.Member("ns/dead-7")
	_, needed := v.Member("ns/dead-8")
	if !read || !needed || len(v.index) != 2 {
		t.Errorf("the one that was read is there: %t, the one that is needed: %t, of %d", read, needed, len(v.index))
	}
}
