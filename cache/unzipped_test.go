package cache

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/view"
)

const urlInitial = urlWatch + "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"

// openZipped answers a watch like an apiserver that compresses initial events.
func (u *upstream) openZipped(r *http.Request) *http.Response {
	res := u.open(r)
	if r.URL.Query().Has("sendInitialEvents") && r.Header.Get("Accept-Encoding") == "gzip" {
		res.Header.Set("Content-Encoding", "gzip")
	}
	return res
}

// zipped returns a member of a gzip stream, which an apiserver sends at once.
func zipped(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// startZipped starts a watch of a client that accepts gzip, which has read the initial events.
func startZipped(t *testing.T) (*upstream, *Cache, *watcher, *io.PipeWriter) {
	t.Helper()
	u := newUpstream()
	u.shows("100", podJSON("a", "50"))
	u.on("watch", u.openZipped)
	c := startCache(t, u)
	w := startWatch(acceptingGzip(t.Context()), t, c, urlInitial)
	feed := <-u.feeds
	send(t, feed, zipped(t, podEvent("ADDED", "a", "50")), zipped(t, podEvent("ADDED", "b", "60")+podBookmark("100", true)))
	synctest.Wait()
	return u, c, w, feed
}

const heardAtFirst = "ADDED:a=50 ADDED:b=60 BOOKMARK:=100"

func TestCompressedInitialEventsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c, w, feed := startZipped(t)
		if got := w.heard(t); got != heardAtFirst {
			t.Errorf("the client heard %q, want %q", got, heardAtFirst)
		}
		send(t, feed, zipped(t, podEvent("MODIFIED", "a", "110")))
		synctest.Wait() // it comes at once, not with the next
		if got, want := w.heard(t), heardAtFirst+" MODIFIED:a=110"; got != want {
			t.Errorf("the client heard %q, want %q", got, want)
		}
		u.goAway()
		expect(t, c, "offline", urlPods, "110: a=110 b=60")
	})
}

// The response header names the encoding once, and an apiserver does not compress a watch that
// starts at a resourceVersion.
func TestACompressedWatchGoesOnAfterAnOutage(t *testing.T) {
	whole := func(t *testing.T) string { return zipped(t, podEvent("MODIFIED", "a", "110")) }
	tests := map[string]struct {
		last func(*testing.T) string // that comes before the outage
		want string
	}{
		"between two events":         {func(*testing.T) string { return "" }, heardAtFirst},
		"after a member":             {whole, heardAtFirst + " MODIFIED:a=110"},
		"in the header of a member":  {func(t *testing.T) string { return whole(t)[:4] }, heardAtFirst},
		"in the trailer of a member": {func(t *testing.T) string { z := whole(t); return z[:len(z)-4] }, heardAtFirst + " MODIFIED:a=110"},
		"what comes is not gzip":     {func(*testing.T) string { return podEvent("MODIFIED", "a", "110") }, heardAtFirst},
	}
	for name, test := range tests {
		bubble(t, name, func(t *testing.T) {
			u, c, w, feed := startZipped(t)
			if last := test.last(t); last != "" {
				go func() { _, _ = io.WriteString(feed, last) }() // not all of it may be read
			}
			synctest.Wait()
			u.goAway()
			feed.CloseWithError(io.ErrUnexpectedEOF)
			time.Sleep(10 * time.Second)
			u.shows("110", podJSON("a", "110"), podJSON("b", "60"))
			u.comeBack()
			time.Sleep(30 * time.Second)
			send(t, <-u.feeds, podEvent("ADDED", "c", "120"))
			synctest.Wait()
			if got, want := w.heard(t), test.want+" ADDED:c=120"; got != want {
				t.Errorf("the client heard %q, want %q", got, want)
			}
			u.goAway()
			if got := get(t, c, urlPods); got == view.ErrNeverRead.Error() {
				t.Error("offline: the view is not kept")
			}
		})
	}
}

func TestCompressedInitialEventsThatBreakOffEndTheWatch(t *testing.T) {
	first, last := zipped(t, podEvent("ADDED", "a", "50")), zipped(t, podEvent("ADDED", "b", "60")+podBookmark("100", true))
	for _, n := range []int{1, 9, 10, 11, 40} {
		synctest.Test(t, func(t *testing.T) {
			u := newUpstream()
			u.on("watch", u.openZipped)
			c := startCache(t, u)
			w := startWatch(acceptingGzip(t.Context()), t, c, urlInitial)
			feed := <-u.feeds
			send(t, feed, first, last[:n])
			feed.Close()
			<-w.done
			if got, want := w.heard(t), "ADDED:a=50"; got != want {
				t.Errorf("the client heard %q, want %q", got, want)
			}
			if w.ended() {
				t.Errorf("the stream ends as if it were whole, after %d bytes of a member", n)
			}
		})
	}
}

// A watch in an encoding that was not requested is relayed unchanged.
func TestAWatchInAnUnknownEncodingPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		u.on("watch", func(*http.Request) *http.Response {
			res := respond(http.StatusOK, "\x28\xb5\x2f\xfd")
			res.Header.Set("Content-Encoding", "zstd")
			return res
		})
		c := startCache(t, u)
		res, err := c.RoundTrip(newRequest(t.Context(), http.MethodGet, urlInitial))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(body) != "\x28\xb5\x2f\xfd" || res.Header.Get("Content-Encoding") != "zstd" {
			t.Errorf("%q, %v, in the encoding %q", body, err, res.Header.Get("Content-Encoding"))
		}
	})
}
