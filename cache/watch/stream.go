package watch

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/tee"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	// bookmarkEvery is the interval of bookmarks in a held watch, about that of an
	// apiserver.
	bookmarkEvery = time.Minute
	// unboundedWatch is the shortest time after which an apiserver ends a watch without
	// timeoutSeconds (--min-request-timeout).
	unboundedWatch = 30 * time.Minute
	// endSlack is how much before its timeout a watch may end.
	endSlack = 2 * time.Second
	// maxBuffered bounds the bytes of events that go to the client in one write.
	maxBuffered = 32 << 10
	// keptBuffer is the size, in bytes, up to which a watch keeps the buffer of its events for
	// the next ones: most fit into it, and a node has a thousand watches.
	keptBuffer = 8 << 10
)

// stream is the body of a watch. It relays the events of an apiserver; while the cloud is
// away it is held open, and then it resumes from its client's version.
//
// Like any body it is for one goroutine.
type stream struct {
	watches *Watches
	query   *query.Query
	repr    wire.Representation
	view    *view.View // acquired
	feed    *view.Feed // of the view
	req     *http.Request

	opened   time.Time
	deadline time.Time // zero without timeoutSeconds

	relayed
	output

	// at is the version up to which the client has all events. It is empty until the initial
	// events have ended.
	at      string
	initial bool // in the initial events
	// anyState means that they may be of any state that once was: they are kept as single objects only.
	anyState bool
	builder  *view.Builder // of initial events; nil if they are not cached
	replay   *replay       // initial events from the cache
	item     wire.TypeMeta // of the objects; empty until it is known
	unsure   bool          // until its first upstream: the client has read more than this watch
	marked   time.Time     // time of the last bookmark
	shown    shown

	loss
}

// relayed is what a stream relays, or has relayed until it was lost.
type relayed struct {
	upstream io.ReadCloser // nil while there is none
	frames   *wire.FrameReader
	openedAt string // the version at which upstream was opened last
	resumed  bool   // upstream was opened by the hub, unknown to the client, and may be below at
	opaque   bool   // the rest of upstream is unreadable, and relayed as it is
	partial  bool   // part of an event has been relayed
}

// output is what the client gets.
type output struct {
	out  []byte // events
	sent int    // bytes of out that the client has read
	err  error  // returned after out
}

// loss is the last loss of a stream's upstream, and the attempts to resume after it.
type loss struct {
	seen       seen          // by then
	suspect    bool          // the apiservers' store may be another after the return
	unchecked  int           // failures to ask for their version since then
	outage     int           // number of the last; see Outages
	notBefore  time.Time     // earliest time to resume after the last outage
	retry      wait.Backoff  // of attempts
	retryAfter time.Duration // the pause before the next attempt; 0 before the first
}

// newStream returns the body of a watch in a representation. began is view.View.Began when the watch was opened.
func (w *Watches) newStream(req *http.Request, q *query.Query, repr wire.Representation, began view.Began) *stream {
	now := time.Now()
	s := &stream{
		watches: w, query: q, repr: repr, req: req,
		view:   w.Views.Acquire(q.Key(repr)),
		opened: now, marked: now, loss: loss{outage: w.Outages.Count()}, shown: shown{Shown: w.Derived.NewShown()},
	}
	s.feed = s.view.NewFeed(began)
	s.resetRetry()
	if q.Timeout > 0 {
		s.deadline = now.Add(q.Timeout)
	}
	if versions.Valid(q.Version) && !q.InitialEvents {
		s.at, s.unsure = q.Version, true
	} else {
		s.initial = true
		if s.anyState = q.Version == "0" && !q.InitialEvents; !s.anyState && (q.Bookmarks || q.InitialEvents) { // a bookmark will end them
			// Without WatchList, an apiserver may begin with what it remembers.
			s.builder = s.view.NewBuilder(began, q.InitialEvents && q.Consistent(), repr.Encoding)
		}
	}
	return s
}

// release frees everything but upstream.
func (s *stream) release() {
	s.endBuilder()
	if s.replay != nil {
		s.replay.Close()
		s.replay = nil
	}
	if s.view != nil {
		s.feed.Close()
		s.view.Release()
		s.view = nil
	}
}

func (s *stream) endBuilder() {
	if s.builder != nil {
		if s.initial { // the client has seen events that are not cached
			s.watches.Views.Floor(s.query.UserResource(), s.builder.Newest())
			s.watches.Views.RecordShown(s.builder)
		}
		s.builder.End()
		s.builder = nil
	}
}

// attach makes res the stream's upstream, which was opened at a version.
func (s *stream) attach(res *http.Response, from string) error {
	if err := tee.UnzipWatch(res); err != nil {
		return err
	}
	frames, err := wire.NewFrameReader(res.Body, s.repr.Encoding)
	if err != nil {
		return err
	}
	s.upstream, s.frames, s.openedAt = res.Body, frames, from
	s.accepted(from)
	return nil
}

func (s *stream) Close() error {
	s.release()
	s.err = errors.Join(s.err, http.ErrBodyReadAfterClose)
	return s.detach()
}

func (s *stream) detach() error {
	if s.upstream == nil {
		return nil
	}
	err := s.upstream.Close()
	s.upstream, s.frames = nil, nil
	s.feed.Open(s.at, nil)
	s.shown.stopSettling()
	return err
}

// state is what a stream does at the next Read.
type state uint8

const (
	// ended: the client has received everything; Read returns the error. This state is final.
	ended state = iota
	// replaying: the stream sends initial events from the cache. After that it waits.
	replaying
	// waiting: there is no upstream. The client gets bookmarks, and the status that the node
	// reports. The stream relays after it has resumed; it ends at its deadline, or if the
	// client has to list again.
	waiting
	// relaying: the stream relays the events of an apiserver. When upstream is lost it waits,
	// or ends, if the watch has timed out or the client has no version to resume from.
	relaying
)

func (s *stream) state() state {
	switch {
	case s.err != nil:
		return ended
	case s.replay != nil:
		return replaying
	case s.upstream == nil:
		return waiting
	}
	return relaying
}

// Read returns the next events. It blocks until there is at least one.
func (s *stream) Read(p []byte) (int, error) {
	for s.sent == len(s.out) {
		if s.replay != nil && !s.replay.Out.IsEmpty() {
			return s.replay.Out.Read(p), nil
		}
		now := s.state()
		if now == ended {
			return 0, s.err
		}
		if s.out, s.sent = s.out[:0], 0; cap(s.out) > keptBuffer {
			s.out = nil
		}
		switch now {
		case replaying:
			s.replayInitial()
		case waiting:
			s.waitUpstream()
		case relaying:
			s.relay()
		}
	}
	n := copy(p, s.out[s.sent:])
	s.sent += n
	return n, nil
}

// context returns the context of the client's request.
func (s *stream) context() context.Context { return s.req.Context() }
