package cache

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/test/bench/process"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// memoryLimit is what the hub may ever take while it answers offline, in bytes: its
// program takes some 30 MB, the runtime uses 64 MB before it collects garbage in earnest,
// of the file with the list some 40 MB are mapped, and the rest is for what waits.
const memoryLimit = 190 << 20

// singlesLimit is the same for single objects of 1 MB: it takes some 87 MB, and 122 MB where
// the answers that nobody reads are held whole.
const singlesLimit = 105 << 20

// quietHub is a hub that has read a list of some 24 MB in protobuf, as an account,
// and was started again without the cloud: all memory that it takes is for answers.
func quietHub(t *testing.T, objects, size int) (*hub, *space, *client) {
	t.Helper()
	binary, err := hubproc.BuildForMeasuring(t.Context(), productRoot, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h, s := newHub(t, func(o *hubproc.Options) { o.Binary = binary }), newSpace(t)
	s.large("c", objects, size)
	token := s.account("reader")
	h.as(token).servedList(t, s.path, protobuf)
	h.awaitDisk()
	h.stop()
	h.cut()
	h.start()
	reader := h.as(token)
	return h, s, reader
}

// peak fails the test if the hub has ever had more memory than it may.
func (h *hub) peak(t *testing.T, doing string) {
	t.Helper()
	h.peakWithin(t, doing, memoryLimit)
}

func (h *hub) peakWithin(t *testing.T, doing string, limit int64) {
	t.Helper()
	peak, err := process.Peak(h.Pid())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s took the hub to %d MB", doing, peak>>20)
	if peak > limit {
		t.Errorf("%s took the hub to %d MB, at most %d MB is right", doing, peak>>20, limit>>20)
	}
}

// awaitStandstill waits until the hub has nothing to do but to wait for its clients.
func (h *hub) awaitStandstill(t *testing.T) {
	t.Helper()
	var before time.Duration
	next := time.Now()
	poll.Until(t, patience, "the hub stands still", func() bool {
		if time.Now().Before(next) {
			return false
		}
		next = time.Now().Add(time.Second)
		now, err := process.CPU(h.Pid())
		if err != nil {
			t.Fatal(err)
		}
		still := now-before <= 20*time.Millisecond
		before = now
		return still
	})
}

// a large list is converted object by object, and what nobody reads costs next to nothing.
func TestMeasuredMemoryOfConversions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ objects, size int }{{600, 40_000}, {24, 1_000_000}} {
		t.Run(fmt.Sprintf("%d of %d bytes", c.objects, c.size), func(t *testing.T) {
			h, s, reader := quietHub(t, c.objects, c.size)
			if l := reader.get(t, s.path, asJSON).listing(t); len(l.items) != c.objects+1 {
				t.Errorf("in JSON the list has %d items", len(l.items))
			}
			h.peak(t, "one list in JSON")
			reader.get(t, s.path, metaList)
			h.peak(t, "one list of metadata")
			unread(t, reader, 60, request{path: s.path, accept: asJSON})
			h.awaitStandstill(t)
			h.peak(t, "sixty lists in JSON that nobody reads")
			unread(t, reader, 60, request{path: with(s.path, watchListQuery), accept: asJSON})
			h.awaitStandstill(t)
			h.peak(t, "sixty watches in JSON that nobody reads")
			unread(t, reader, 60, request{path: s.path, accept: protobuf})
			h.awaitStandstill(t)
			h.peak(t, "sixty lists as they are kept that nobody reads")
			if l := reader.get(t, s.path, asJSON).listing(t); len(l.items) != c.objects+1 {
				t.Errorf("beside them the list has %d items", len(l.items))
			}
			h.peak(t, "all of it")
		})
	}
}

// A large object is not held whole for each client that does not read it.
func TestMeasuredMemoryOfSingleObjects(t *testing.T) {
	t.Parallel()
	h, s, reader := quietHub(t, 2, 1_000_000)
	for _, accept := range []string{protobuf, asJSON} {
		unread(t, reader, 60, request{path: s.path + "/c-000", accept: accept})
		h.awaitStandstill(t)
		h.peakWithin(t, "sixty GETs that nobody reads, as "+accept+",", singlesLimit)
	}
}

// unread makes requests at the same time and reads nothing of the answers until the
// test ends. Some may be cut: there is a bound to them.
func unread(t *testing.T, c *client, n int, r request) {
	t.Helper()
	opened := make(chan *http.Response, n)
	for range n {
		go func() {
			res, _ := c.open(t.Context(), r)
			opened <- res
		}()
	}
	for range n {
		if res := <-opened; res != nil {
			t.Cleanup(func() { _ = res.Body.Close() })
		}
	}
}
