package cache

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/cache/answer"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// startLarge starts an offline cache with pods of these sizes in protobuf: p000 and so on.
func startLarge(t *testing.T, sizes ...int) (c *Cache, items [][]byte) {
	t.Helper()
	u := newUpstream()
	c = startCache(t, u)
	names, items := largePods(t, sizes...)
	fillWith(t, c, names, items)
	u.goAway()
	return c, items
}

// begin sends a GET, and does not read the answer.
func begin(t *testing.T, c *Cache, name, accept string) *http.Response {
	t.Helper()
	r := newRequest(t.Context(), http.MethodGet, modelURL(name))
	r.Header.Set("Accept", accept)
	res, err := c.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestALargeObjectInPartsIsTheWholeObject(t *testing.T) {
	sizes := []int{10, 20_000, answer.MaxWaiting - 100, 70_000, 260_000}
	c, items := startLarge(t, sizes...)
	for _, r := range representations {
		for _, room := range []int64{0, answer.MaxLargeWaiting} { // for large objects
			t.Run(fmt.Sprintf("%s, room for %d", r, room), func(t *testing.T) {
				c.offline.Reserve(answer.MaxLargeWaiting - room)
				defer c.offline.Reserve(room - answer.MaxLargeWaiting)
				for i := range sizes {
					o := view.Object{Type: podType, Repr: wire.Representation{Encoding: wire.Protobuf}, Bare: items[i]}
					want, err := answer.AppendObject(nil, o, r)
					if err != nil {
						t.Fatal(err)
					}
					res := begin(t, c, fmt.Sprintf("p%03d", i), strings.ReplaceAll(r.AcceptList(), "List", ""))
					got, err := io.ReadAll(res.Body)
					if err != nil || !bytes.Equal(got, want) || res.ContentLength != int64(len(want)) {
						t.Errorf("%v: %d bytes, Content-Length %d, want %d; %.300q", err, len(got), res.ContentLength, len(want), got)
					}
					if err := res.Body.Close(); err != nil {
						t.Error(err)
					}
				}
				if n := c.offline.Reserve(0); n != answer.MaxLargeWaiting-room {
					t.Errorf("%d bytes of large objects are still counted", n-answer.MaxLargeWaiting+room)
				}
			})
		}
	}
}

// heap returns the bytes in use after a garbage collection.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what was in pools goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestLargeObjectsThatNobodyReadsAreNotHeld(t *testing.T) {
	const unread = 12                                                                            // of 1.4 MB each, where 5 MB may be held
	for accept, size := range map[string]int{"application/json": 320_000, protobuf: 1_400_000} { // in protobuf
		t.Run(accept, func(t *testing.T) {
			c, _ := startLarge(t, size)
			before := heap()
			for range unread {
				res := begin(t, c, "p000", accept)
				defer res.Body.Close()
			}
			if grown := heap() - before; grown > answer.MaxLargeWaiting+unread*(answer.MaxWaiting+32<<10) {
				t.Errorf("%d answers that nobody reads take %d MB", unread, grown>>20)
			}
			res := begin(t, c, "p000", accept)
			defer res.Body.Close()
			if n, err := io.Copy(io.Discard, res.Body); err != nil || n != res.ContentLength {
				t.Errorf("beside them %d bytes of %d are read: %v", n, res.ContentLength, err)
			}
		})
	}
}
