package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	// bookmarkEvery is how often a watch that is held open gets a bookmark; an
	// apiserver sends one about every minute.
	bookmarkEvery = time.Minute
	// unboundedWatch is the least time after which an apiserver ends a watch
	// that has no timeoutSeconds (--min-request-timeout).
	unboundedWatch = 30 * time.Minute
	// endSlack is how much earlier than asked for the end of a watch may come.
	endSlack = 2 * time.Second
	// maxBuffered bounds the bytes of events that go to the client in one write.
	maxBuffered = 32 << 10
)

// stream is the body of a watch. It is fed by an apiserver as long as there is
// one; while there is none it is held open, and then it goes on from where its
// client is.
//
// Like any body it is for one goroutine.
type stream struct {
	watches *Watches
	query   *query.Query
	repr    negotiation.Representation
	view    *view.View // held
	req     *http.Request

	opened   time.Time
	deadline time.Time // zero where the client has named none

	upstream io.ReadCloser // nil while there is none
	frames   *wire.FrameReader

	out  []byte // events on their way to the client
	sent int    // of out
	err  error  // behind out

	// at is the version up to which the client has been told everything. It is
	// empty until the initial events have ended.
	at        string
	initial   bool          // initial events are coming
	stage     *view.Stage   // of initial events; nil where they are not kept
	replay    *replay       // initial events that come from the cache
	item      wire.TypeMeta // of the objects; empty until it is known
	resumed   bool          // upstream was opened here, and the client does not know
	gap       bool          // an event has passed that could not be read
	opaque    bool          // the rest of upstream's bytes cannot be read; they pass
	partial   bool          // part of an event has been passed on
	lostAt    time.Time     // when upstream broke off
	tries     int           // to open it again
	outage    int           // the last that was known; see relist.Outages
	notBefore time.Time     // when to open upstream again after the last outage, at the earliest
	suspect   bool          // upstream was lost, and may come back as another
	marked    time.Time     // when the last bookmark of ours was due
	held      heldStatus
}

// newStream returns the body of a watch in a representation. began is the version of its view
// when the watch was opened.
func (w *Watches) newStream(req *http.Request, q *query.Query, repr negotiation.Representation, began string) *stream {
	now := w.Now()
	s := &stream{
		watches: w, query: q, repr: repr, req: req,
		view:   w.Views.Acquire(q.Key(repr)),
		opened: now, marked: now, outage: w.Outages.Count(),
	}
	if q.Timeout > 0 {
		s.deadline = now.Add(q.Timeout)
	}
	if versions.Valid(q.Version) && !q.InitialEvents {
		s.at = q.Version
	} else {
		s.initial = true
		if q.Bookmarks || q.InitialEvents { // there will be an end to them
			s.stage = s.view.NewStage(began, q.Consistent())
		}
	}
	return s
}

// release lets go of everything but upstream.
func (s *stream) release() {
	s.endStage()
	if s.replay != nil {
		s.replay.Close()
		s.replay = nil
	}
	if s.view != nil {
		s.view.Template.CompareAndSwap(s.req, nil)
		s.view.Release()
		s.view = nil
	}
}

func (s *stream) endStage() {
	if s.stage != nil {
		if s.initial { // the client has seen what is not kept
			s.watches.Records.Forgot(s.query.UserResource(), s.stage.Newest())
		}
		s.stage.End()
		s.stage = nil
	}
}

// attach makes res what the stream is fed by.
func (s *stream) attach(res *http.Response) error {
	if e := res.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return fmt.Errorf("a watch in the encoding %q", e)
	}
	frames, err := wire.NewFrameReader(res.Body, s.repr.Encoding, wire.FrameOptions{})
	if err != nil {
		return err
	}
	s.upstream, s.frames = res.Body, frames
	s.view.Deny(false)
	if s.at == "" {
		return nil
	}
	s.view.Template.Store(s.req)
	s.settleLater()
	switch p := s.view.Position(); {
	case versions.Compare(p, s.at) < 0: // events would leave a gap
		s.watches.Lister.Refresh(s.view, s.req)
	case versions.Compare(p, s.at) > 0 && !s.resumed:
		s.watches.Lister.Verify(s.view, s.req)
	}
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
	s.held.stopSettling()
	return err
}

// state is what a stream does when its client wants to read on.
type state uint8

const (
	// ended: the client has got everything, and the error behind it comes. It is for good.
	ended state = iota
	// replaying: initial events come from the cache. Then the stream waits.
	replaying
	// waiting: there is no upstream. The client gets bookmarks, and what the node reports of
	// its own status; the stream relays when it is resumed, and ends at its deadline or where
	// its client has to list again.
	waiting
	// relaying: an apiserver feeds the stream. It waits when that breaks off; where that is
	// the end that the client has asked for, or the client has no version from which to go
	// on, it ends.
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

// Read returns the next events, as many as there are. It waits for the first.
func (s *stream) Read(p []byte) (int, error) {
	for s.sent == len(s.out) {
		if s.replay != nil && !s.replay.Out.IsEmpty() {
			return s.replay.Out.Read(p), nil
		}
		now := s.state()
		if now == ended {
			return 0, s.err
		}
		if s.out, s.sent = s.out[:0], 0; cap(s.out) > 4*maxBuffered {
			s.out = nil // one large event is no reason to keep as much for good
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

// context is that of the client's request.
func (s *stream) context() context.Context { return s.req.Context() }
