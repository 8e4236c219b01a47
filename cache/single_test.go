package cache

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// fullSingleView is a Single view of pods that is full of dead-n, at versions from 1000 on.
func fullSingleView(c *Cache) *view {
	key := podsKey(nodeUser)
	key.Single = true
	v := c.views.acquire(key)
	defer v.release()
	for i := range maxSingles {
		keepPod(v, fmt.Sprint("dead-", i), fmt.Sprint(1000+i))
	}
	return v
}

func keepPod(v *view, name, version string) {
	v.keepSingle(wire.TypeMeta{APIVersion: "v1", Kind: "Pod"}, "ns/"+name, "", version, []byte(podJSON(name, version)))
}

// Objects that are read again and again stay, however old, and so do those that have just
// come: not the version decides which are no longer needed.
func TestWhatIsReadStaysAmongSingleObjects(t *testing.T) {
	c := startCache(t, newUpstream())
	v := fullSingleView(c)
	keepPod(v, "old", "7")
	if _, ok := v.member("ns/old"); !ok {
		t.Fatal("what has just been read is not kept")
	}
	for i := range 2 * maxSingles {
		keepPod(v, fmt.Sprint("more-", i), fmt.Sprint(5000+i))
		if i%100 == 0 {
			keepPod(v, "old", "7")
		}
	}
	if _, ok := v.member("ns/old"); !ok || len(v.index) > maxSingles {
		t.Errorf("what is read all the time is kept: %v, of %d", ok, len(v.index))
	}
	if n := len(v.reads.last); n > maxSingles {
		t.Errorf("%d reads are remembered", n)
	}
}

// What the disk has is what the view has: nothing stays there of which nobody knows.
func TestSingleObjectsThatMadeRoomLeaveTheDisk(t *testing.T) {
	dir := t.TempDir()
	c := openCache(t, dir, newUpstream())
	stop := runCache(t, c)
	v := fullSingleView(c)
	keepPod(v, "old", "7") // of the lowest version
	kept := len(v.index)
	stop()
	c = openCache(t, dir, newUpstream())
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	stored := 0
	s, _ := c.disk.now()
	if err := s.Views(func(v store.View) error { stored += v.Members; return nil }); err != nil || stored != kept {
		t.Errorf("%d members are on disk, want %d, %v", stored, kept, err)
	}
}

// An object that is known to be gone takes no room from others.
func TestAnObjectThatIsGoneIsNoSingleObject(t *testing.T) {
	u := newUpstream()
	u.shows("100", podJSON("a", "50"), podJSON("b", "60"))
	c := startCache(t, u)
	get(t, c, urlPodA)
	get(t, c, urlPodB)
	u.onText("delete", http.StatusOK, podJSON("a", "105"))
	ask(t.Context(), t, c, http.MethodDelete, urlPodA)
	key := podsKey(nodeUser)
	key.Single = true
	if got := c.views.find(key).shows(); got != "3 ns/b=60 unusable" {
		t.Errorf("single objects: %q", got)
	}
	u.goAway()
	if a, b := get(t, c, urlPodA), get(t, c, urlPodB); a != "404" || b != "b=60" {
		t.Errorf("offline: %q and %q", a, b)
	}
}
