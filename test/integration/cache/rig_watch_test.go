package cache

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// The ways to begin a watch.
const (
	watchQuery     = "watch=true&allowWatchBookmarks=true"
	watchListQuery = watchQuery + "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
)

// event is one frame of a watch. With err, the stream has ended: io.EOF is a clean end.
type event struct {
	kind    watch.EventType
	name    string
	uid     string
	version string
	code    int  // of an ERROR
	end     bool // the bookmark that ends the initial events
	raw     []byte
	err     error
}

// stream is an open watch.
type stream struct {
	status int
	header http.Header
	body   []byte // of an answer other than 200
	events chan event
	stop   context.CancelFunc
}

// watch opens a watch, which ends with the test at the latest. Whatever the answer
// is, it has to come.
func (c *client) watch(t *testing.T, path, accept string) *stream {
	t.Helper()
	s, err := c.tryWatch(t, path, accept)
	if err != nil {
		t.Fatalf("WATCH %s: %v", path, err)
	}
	return s
}

func (c *client) tryWatch(t *testing.T, path, accept string) (*stream, error) {
	ctx, cancel := context.WithCancel(t.Context())
	answered := time.AfterFunc(patience, cancel)
	res, err := c.open(ctx, request{path: path, accept: accept})
	answered.Stop()
	if err != nil {
		cancel()
		return nil, err
	}
	s := &stream{status: res.StatusCode, header: res.Header, events: make(chan event, 10_000), stop: cancel}
	if res.StatusCode != http.StatusOK {
		defer cancel()
		defer res.Body.Close()
		s.body, err = io.ReadAll(res.Body)
		return s, err
	}
	encoding := wire.JSON
	if strings.Contains(res.Header.Get("Content-Type"), "protobuf") {
		encoding = wire.Protobuf
	}
	frames, err := wire.NewFrameReader(res.Body, encoding)
	if err != nil {
		cancel()
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer res.Body.Close()
		s.read(ctx, frames)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return s, nil
}

func (s *stream) read(ctx context.Context, frames *wire.FrameReader) {
	for {
		e := event{}
		f, err := frames.Next()
		switch {
		case err != nil:
			e.err = err
		case f.Err == nil && f.Type == "":
			continue // blanks between events
		default:
			e = event{kind: f.Type, name: string(f.Meta.Name), uid: string(f.Meta.UID), version: string(f.Meta.ResourceVersion), code: f.Code, end: f.InitialEventsEnd, raw: append([]byte(nil), f.Raw...)}
		}
		select {
		case s.events <- e:
		case <-ctx.Done():
			return
		}
		if e.err != nil {
			return
		}
	}
}

// next returns the next event, bookmarks and the end of the stream among them.
func (s *stream) next(t *testing.T) event {
	t.Helper()
	return s.nextBefore(t, time.After(patience))
}

func (s *stream) nextBefore(t *testing.T, deadline <-chan time.Time) event {
	t.Helper()
	if s.status != http.StatusOK {
		t.Fatalf("the watch was answered with %d: %.300q", s.status, s.body)
	}
	select {
	case e := <-s.events:
		return e
	case <-deadline:
		t.Fatalf("what has to come did not come on the watch for %s", patience)
		return event{}
	}
}

// change returns the next event that is about an object.
func (s *stream) change(t *testing.T) event {
	t.Helper()
	deadline := time.After(patience) // bookmarks come for as long as it waits
	for {
		e := s.nextBefore(t, deadline)
		if e.err != nil || e.kind == watch.Error {
			t.Fatalf("the watch has ended: %+v", e)
		}
		if e.kind != watch.Bookmark {
			return e
		}
	}
}

// expect fails the test unless the next change is this one.
func (s *stream) expect(t *testing.T, kind watch.EventType, name string) event {
	t.Helper()
	e := s.change(t)
	if e.kind != kind || e.name != name {
		t.Fatalf("the watch says %s %s at %s; want %s %s", e.kind, e.name, e.version, kind, name)
	}
	return e
}

// initial reads up to the bookmark that ends the initial events, and returns what
// came, and the bookmark's version.
func (s *stream) initial(t *testing.T) (items map[string]string, version string) {
	t.Helper()
	items = map[string]string{}
	for {
		switch e := s.next(t); {
		case e.err != nil || e.kind == watch.Error:
			t.Fatalf("the watch has ended before its initial events: %+v", e)
		case e.end:
			return items, e.version
		case e.kind == watch.Added:
			if _, twice := items[e.name]; twice {
				t.Fatalf("%s was added twice", e.name)
			}
			items[e.name] = e.version
		default:
			t.Fatalf("%s %s is among the initial events", e.kind, e.name)
		}
	}
}

// tooOld fails the test unless the watch is refused because its version is too old, as
// an answer or as its first event: an apiserver does either.
func (s *stream) tooOld(t *testing.T) {
	t.Helper()
	if s.status == http.StatusGone {
		return
	}
	if e := s.next(t); e.kind != watch.Error || e.code != http.StatusGone {
		t.Errorf("want 410 Gone; got %+v", e)
	}
}

// silent fails the test if anything but bookmarks comes within d.
func (s *stream) silent(t *testing.T, d time.Duration) {
	t.Helper()
	if s.status != http.StatusOK {
		t.Fatalf("the watch was answered with %d: %.300q", s.status, s.body)
	}
	for quiet := time.After(d); ; {
		select {
		case e := <-s.events:
			if e.kind != watch.Bookmark {
				t.Fatalf("want silence; got %+v", e)
			}
		case <-quiet:
			return
		}
	}
}
