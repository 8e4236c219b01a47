package fuzzcache

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// watch follows a query until ctx ends: it lists, or asks for initial events, and goes
// on from there as often as the watch ends.
func (fl *follower) watch(ctx context.Context, r *rand.Rand, initialEvents bool) {
	c := fl.c
	for ctx.Err() == nil {
		if !c.startFollowing(ctx, r, fl, initialEvents) {
			pause(ctx, time.Duration(200+r.IntN(800))*time.Millisecond)
			continue
		}
		for !fl.lost && ctx.Err() == nil {
			c.watchFrom(ctx, r, fl)
			pause(ctx, time.Duration(r.IntN(300))*time.Millisecond)
		}
	}
}

// startFollowing lists. With initial events the watch goes on until it ends.
func (c *client) startFollowing(ctx context.Context, r *rand.Rand, fl *follower, initialEvents bool) bool {
	fl.mu.Lock()
	fl.lost, fl.skipped, fl.items = false, 0, nil
	fl.mu.Unlock()
	if initialEvents {
		version := ""
		if r.IntN(3) == 0 {
			version = "0"
		}
		c.openWatch(ctx, r, fl, fl.q.path("watch", "true", "allowWatchBookmarks", "true", "sendInitialEvents", "true",
			"resourceVersionMatch", "NotOlderThan", "resourceVersion", version, "timeoutSeconds", strconv.Itoa(20+r.IntN(60))))
		return fl.items != nil
	}
	items, rev, ok := c.listAs(ctx, r, fl.q, fl.f)
	if ok {
		fl.mu.Lock()
		fl.begin(items, rev)
		fl.mu.Unlock()
	}
	return ok
}

func (c *client) watchFrom(ctx context.Context, r *rand.Rand, fl *follower) {
	bookmarks := "true"
	if r.IntN(5) == 0 {
		bookmarks = ""
	}
	c.openWatch(ctx, r, fl, fl.q.path("watch", "true", "allowWatchBookmarks", bookmarks,
		"resourceVersion", strconv.FormatInt(fl.at, 10), "timeoutSeconds", strconv.Itoa(20+r.IntN(60))))
}

// openWatch opens a watch and follows it to its end. Some clients leave early.
func (c *client) openWatch(ctx context.Context, r *rand.Rand, fl *follower, path string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.IntN(3) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(1+r.IntN(20))*time.Second)
		defer cancel()
	}
	began := time.Now()
	fl.opened = began
	floor := int64(0)
	if !strings.Contains(path, "resourceVersion=0") { // which is whatever an apiserver remembers
		floor = c.sight.view(viewKey(fl.q, fl.f))
	}
	res, err := c.mayUpgrade(r, fl.f).open(ctx, http.MethodGet, path, fl.f.accept(false), "", nil)
	if err != nil {
		if ctx.Err() == nil && c.w.weatherOf(began, time.Now()) == fair {
			c.w.report("no answer though nothing was wrong", "%s, %s: %v", c.name, fl.what, err)
		}
		return
	}
	socket := res.StatusCode == http.StatusSwitchingProtocols
	if socket {
		c.w.did("watches opened over WebSocket")
		asStream(ctx, res)
	}
	defer res.Body.Close()
	if !socket && res.StatusCode != http.StatusOK {
		body, err := io.ReadAll(res.Body) // the hub may be killed meanwhile
		a := &answer{code: res.StatusCode, body: body, err: err, began: began, ended: time.Now()}
		a.weather = c.w.weatherOf(began, a.ended)
		if c.usual(ctx, fl.what, a, http.StatusGone) {
			fl.lost = true
		}
		return
	}
	c.w.did("watches opened")
	err = c.follow(fl, res, floor)
	ended := time.Now()
	if socket || fl.f.table() || c.sight.forgotten(ended) && c.w.weatherOf(began, ended) != fair {
		return // it is not held, or its user not known yet: it breaks with its connection
	}
	if !errors.Is(err, io.EOF) && ctx.Err() == nil && !fl.lost && fl.items != nil && !c.w.hubDown(began, ended.Add(time.Second)) {
		c.w.report("a watch that broke", "%s, %s: after %v: %v", c.name, path, ended.Sub(began).Round(time.Millisecond), err)
	}
}

// errGaveUp is returned where a watch cannot be followed any more.
var errGaveUp = errors.New("the watch is not followed any more")

func (c *client) follow(fl *follower, res *http.Response, floor int64) error {
	encoding := wire.JSON
	if strings.Contains(res.Header.Get("Content-Type"), "protobuf") {
		encoding = wire.Protobuf
	}
	frames, err := wire.NewFrameReader(res.Body, encoding)
	if err != nil {
		return err
	}
	initial := map[string]*state{}
	for {
		frame, err := frames.Next()
		switch {
		case err != nil:
			return err
		case frame.Err != nil:
			if !errors.Is(frame.Err, wire.ErrTruncated) {
				c.w.report("a frame that cannot be read", "%s, %s: %v: %.300q", c.name, fl.what, frame.Err, frame.Raw)
			}
			return io.ErrUnexpectedEOF
		case frame.Type == "":
			continue
		case frame.Type == watch.Error:
			fl.lost = true
			if frame.Code != http.StatusGone && frame.Code < http.StatusInternalServerError {
				c.w.report("an ERROR that nobody expects", "%s, %s: %.300q", c.name, fl.what, frame.Raw)
			}
			return errGaveUp
		}
		if !c.takeFrame(fl, &frame, initial, floor) {
			return errGaveUp
		}
	}
}

func (c *client) takeFrame(fl *follower, frame *wire.Frame, initial map[string]*state, floor int64) bool {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if frame.Type == watch.Bookmark {
		rev, err := strconv.ParseInt(string(frame.Meta.ResourceVersion), 10, 64)
		switch {
		case err != nil:
			return fl.complain("a bookmark without a version", "%.300q", frame.Raw)
		case fl.items != nil:
			return fl.bookmark(rev)
		case frame.InitialEventsEnd:
			return c.initialEventsEnd(fl, initial, rev, floor)
		}
		return true
	}
	got, err := decodeState(frame.Object, 0)
	if err != nil {
		return fl.complain("an event that cannot be read", "%v: %.300q", err, frame.Raw)
	}
	if got.metadata != fl.f.metadata() && !got.table {
		fl.complain("an event in a form that was not asked for", "%v: only metadata: %t", got, got.metadata)
	}
	if fl.items != nil {
		return fl.event(frame.Type, got)
	}
	if _, twice := initial[got.key()]; twice || frame.Type != watch.Added {
		return fl.complain("an initial event that is none", "%s %v", frame.Type, got)
	}
	initial[got.key()] = got
	return true
}

// initialEventsEnd holds the initial events against what etcd had.
func (c *client) initialEventsEnd(fl *follower, initial map[string]*state, rev, floor int64) bool {
	if err := c.w.history.await(rev); err != nil {
		return fl.complain("a version that etcd never had", "the end of initial events: %v", err)
	}
	if rev < floor {
		fl.complain("initial events that are older than what was seen", "they are at %d, seen was %d", rev, floor)
	}
	fl.begin(initial, rev)
	if !fl.matches(rev) {
		return false
	}
	c.w.did("lists by initial events")
	c.saw(fl.q, fl.f, nil, rev, true, fl.opened, time.Now())
	return true
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
