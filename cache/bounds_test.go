package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// largePod is a pod of about size bytes.
func largePod(name, version string, size int) string {
	return podJSON(name, version, strings.Repeat("x", size))
}

func keptBytes(c *Cache) (sum int64) {
	for _, s := range c.State() {
		sum += s.Bytes
	}
	return sum
}

// What is full is taken from who has the most: the flooder, and never kubelet or another user.
func TestMaxBytesHoldsHoweverViewsGrow(t *testing.T) {
	const most, size = 256 << 10, 32 << 10
	tests := map[string]func(t *testing.T, c *Cache, u *upstream){
		"by objects that are read one by one": func(t *testing.T, c *Cache, u *upstream) {
			for i := range 20 {
				name := fmt.Sprint("p", i)
				u.onText("get", http.StatusOK, largePod(name, "50", size))
				ask(as(t.Context(), "coredns"), t, c, "GET", "/api/v1/namespaces/ns/pods/"+name)
			}
		},
		"by events": func(t *testing.T, c *Cache, u *upstream) {
			u.shows("100", podJSON("a", "50"))
			ask(as(t.Context(), "coredns"), t, c, "GET", urlPods)
			startWatch(as(t.Context(), "coredns"), t, c, urlWatch+"&resourceVersion=100")
			feed, before := <-u.feeds, u.count("list")
			for i := range 20 {
				send(t, feed, `{"type":"ADDED","object":`+largePod(fmt.Sprint("p", i), fmt.Sprint(200+i), size)+"}\n")
			}
			time.Sleep(2 * view.SweepEvery)
			for i := range 20 { // which do not bring it back
				send(t, feed, podEvent("MODIFIED", "a", fmt.Sprint(300+i)))
				time.Sleep(time.Second)
			}
			if n := u.count("list") - before; n != 0 {
				t.Errorf("what was evicted is listed again, %d times", n)
			}
		},
		"by lists": func(t *testing.T, c *Cache, u *upstream) {
			victim := as(t.Context(), "victim")
			ask(victim, t, c, "GET", urlPods)
			ask(victim, t, c, "GET", urlPodA)
			u.shows("100", largePod("b", "50", size))
			for i := range 20 {
				ask(as(t.Context(), "coredns"), t, c, "GET", fmt.Sprintf("%s?labelSelector=l%d", urlPods, i))
				time.Sleep(time.Millisecond) // or all were read last
			}
			if valueOf(t, c.metrics.evictions) == 0 {
				t.Error("no eviction was counted")
			}
			if sum := keptBytes(c); sum > most {
				t.Errorf("%d KiB are kept before the next sweep, and the bound is %d", sum>>10, most>>10)
			}
			u.goAway()
			if got := ask(as(t.Context(), "coredns"), t, c, "GET", urlPods+"?labelSelector=l19"); !strings.HasPrefix(got, "100: b=50") {
				t.Errorf("what was read last is gone: %.40q", got)
			}
			if got := ask(as(t.Context(), "coredns"), t, c, "GET", urlPods+"?labelSelector=l0"); strings.HasPrefix(got, "100:") {
				t.Errorf("what was not read for longest is there: %.40q", got)
			}
			if list, object := ask(victim, t, c, "GET", urlPods), ask(victim, t, c, "GET", urlPodA); list != "100: a=50" || object != "a=50" {
				t.Errorf("another user has lost what it has read: %q, %q", list, object)
			}
		},
	}
	for name, grow := range tests {
		bubble(t, name, func(t *testing.T) {
			u := newUpstream()
			u.shows("100", podJSON("a", "50"))
			c := startCache(t, u, func(o *Options) { o.MaxBytes = most })
			get(t, c, urlPods)
			grow(t, c, u)
			time.Sleep(2 * view.SweepEvery)
			if sum := keptBytes(c); sum > most {
				t.Errorf("%d KiB are kept, and the bound is %d", sum>>10, most>>10)
			}
			if !keptViews(c)[query.NodeUser] {
				t.Error("the kubelet's view had to go")
			}
		})
	}
}

// largeList answers with the pods from one number to another, of 1 MiB each, in
// protobuf, which is read quickly.
func largeList(t *testing.T, version, next string, from, to int) answerFunc {
	t.Helper()
	var sizes wire.ItemSizes
	items := make([][]byte, to-from)
	for i := range items {
		items[i] = pod(t, fmt.Sprint("p", from+i), "50", strings.Repeat("x", 1<<20))
		sizes.Add(len(items[i]))
	}
	meta := podList
	meta.ResourceVersion, meta.Continue = version, next
	var body bytes.Buffer
	list, err := wire.NewListWriter(&body, wire.Protobuf, meta, sizes)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range items {
		if err := list.WriteItem(item); err != nil {
			t.Fatal(err)
		}
	}
	if err := list.Close(); err != nil {
		t.Fatal(err)
	}
	return func(*http.Request) *http.Response {
		res := respond(http.StatusOK, body.String())
		res.Header.Set("Content-Type", protobuf)
		return res
	}
}

// Nobody is asked to list what was too large the last time, also after a restart, until a list is kept.
func TestAListThatIsTooLargeIsNotAskedFor(t *testing.T) {
	const urlFrom = urlPods + "?watch=true&resourceVersion=200"
	synctest.Test(t, func(t *testing.T) {
		u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
		c, stop := runIn(t, dir, u)
		u.on("list", largeList(t, "200", "", 0, view.MaxListBytes>>20+2))
		u.on("watch", func(r *http.Request) *http.Response {
			res := u.open(r)
			res.Header.Set("Content-Type", protobuf+";stream=watch")
			return res
		})
		ctx := context.WithValue(as(t.Context(), "coredns"), acceptKey{}, protobuf)
		if _, err := readBody(ctx, t, c, urlPods); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			w := startWatch(ctx, t, c, urlFrom)
			<-u.feeds
			time.Sleep(time.Hour)
			if got := w.body.String(); got != "" {
				t.Errorf("its watch gets %q", got)
			}
			w.stop()
			<-w.done
			stop()
			c, stop = runIn(t, dir, u)
		}
		if n := keptBytes(c); n != 0 {
			t.Errorf("%d bytes are kept of it", n)
		}
		u.on("list", largeList(t, "200", "", 0, 1))
		if _, err := readBody(ctx, t, c, urlPods); err != nil {
			t.Fatal(err)
		}
		giveUp(c, c.views.All()[0])
		asksOnceAs(ctx, t, u, c, urlFrom)
	})
}

func TestAListInPagesIsBounded(t *testing.T) {
	const half = view.MaxListBytes>>21 + 1 // MiB
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		c := startCache(t, u)
		reads := func(list answerFunc, url string) {
			u.on("list", list)
			ctx := context.WithValue(t.Context(), acceptKey{}, protobuf)
			res, err := c.RoundTrip(newRequest(ctx, http.MethodGet, url))
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.Copy(io.Discard, res.Body)
			if err := errors.Join(err, res.Body.Close()); err != nil {
				t.Fatal(err)
			}
		}
		reads(largeList(t, "90", "", 0, 1), urlPods)
		reads(largeList(t, "100", "next", 0, half), urlPods+"?limit=50")
		if c.pages.Len() != 1 {
			t.Fatal("the first page is not kept: this test shows nothing")
		}
		reads(largeList(t, "100", "", half, 2*half), urlPods+"?limit=50&continue=next")
		u.goAway()
		if got, want := get(t, c, urlPods), view.ErrNeverRead.Error(); got != want { // the client has seen more than what was kept before
			t.Errorf("offline: %.80q, want %q", got, want)
		}
		time.Sleep(view.PageTimeout + 2*view.SweepEvery)
		if c.pages.Len() != 0 {
			t.Error("a list waits for a page that nobody asks for")
		}
	})
}

func TestListsInPagesAreBoundedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		c := startCache(t, u)
		for i := range 2 * view.MaxPartialLists { // lists that are not read on
			u.onText("list", http.StatusOK, strings.Replace(podsJSON("100", podJSON("b", "99")), `"100"`, fmt.Sprintf(`"100","continue":"%d"`, i), 1))
			get(t, c, urlPods+"?limit=2")
		}
		if n := c.pages.Len(); n > view.MaxPartialLists {
			t.Errorf("%d lists wait for their next page, and the bound is %d", n, view.MaxPartialLists)
		}
	})
}

// Invariant 23: what is on disk does not depend on how many programs read the same, and hardly on how many users do.
func TestBytesOnDiskDoNotGrowWithReaders(t *testing.T) {
	size := func(t *testing.T, users, programs int) (log int64) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
			var pods []string
			initial := ""
			for i := range 100 {
				p := largePod(fmt.Sprintf("p%03d", i), fmt.Sprint(i+1), 7000)
				pods, initial = append(pods, p), initial+`{"type":"ADDED","object":`+p+"}\n"
			}
			u.shows("100", pods...)
			u.onText("watch", http.StatusOK, initial+podBookmark("100", true))
			c, stop := runIn(t, dir, u)
			for user := range users {
				ctx := as(t.Context(), fmt.Sprint("user", user))
				for range programs {
					ask(ctx, t, c, http.MethodGet, urlPods)
					<-startWatch(ctx, t, c, urlInitial+"&timeoutSeconds=1").done
				}
			}
			stop()
			info, err := os.Stat(filepath.Join(dir, "cache.log"))
			if err != nil {
				t.Fatal(err)
			}
			log = info.Size()
		})
		return log
	}
	one := size(t, 1, 1)
	if ten := size(t, 1, 10); ten >= one+7000 { // a commit is a record in the log, too
		t.Errorf("ten programs take %d bytes on disk, one takes %d", ten, one)
	}
	if three := size(t, 3, 1); three > one*3/2 {
		t.Errorf("three users take %d bytes on disk, one takes %d", three, one)
	}
}
