package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

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
	repr    wire.Representation
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
	outage    int           // the last that was known; see past
	notBefore time.Time     // when to open upstream again after the last outage, at the earliest
	suspect   bool          // upstream was lost, and may come back as another
	marked    time.Time     // when the last bookmark of ours was due
	held      heldStatus
}

// newStream returns the body of a watch in a representation. began is the version of its view
// when the watch was opened.
func (w *Watches) newStream(req *http.Request, q *query.Query, repr wire.Representation, began string) *stream {
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

// Read returns the next events, as many as there are. It waits for the first.
func (s *stream) Read(p []byte) (int, error) {
	for s.sent == len(s.out) {
		if s.replay != nil && !s.replay.Out.IsEmpty() {
			return s.replay.Out.Read(p), nil
		}
		if s.err != nil {
			return 0, s.err
		}
		if s.out, s.sent = s.out[:0], 0; cap(s.out) > 4*maxBuffered {
			s.out = nil // one large event is no reason to keep as much for good
		}
		switch {
		case s.replay != nil:
			s.replayInitial()
		case s.upstream == nil:
			s.waitUpstream()
		default:
			s.relay()
		}
	}
	n := copy(p, s.out[s.sent:])
	s.sent += n
	return n, nil
}

// relay takes frames from upstream, until there is something for the client and
// nothing more at hand.
func (s *stream) relay() {
	for s.err == nil {
		frame, err := s.frames.Next()
		if err != nil {
			s.broken(err)
			return
		}
		s.take(&frame)
		if s.frames == nil || len(s.out) > 0 && (len(s.out) >= maxBuffered || !s.frames.Ready()) {
			return
		}
	}
}

// broken is called when upstream has ended. Where its client would have to begin
// anew, or has been told that this is the end, so it is; otherwise the stream is
// held open.
func (s *stream) broken(err error) {
	now := s.watches.Now()
	clean := errors.Is(err, io.EOF)
	s.detach() //nolint:errcheck // it has ended
	switch {
	case s.req.Context().Err() != nil:
		s.err = err
	case s.partial, s.initial || s.at == "":
		if !clean || s.partial {
			err = io.ErrUnexpectedEOF
		}
		s.err = err
	case clean && s.over(now):
		s.err = io.EOF
	case s.isSettling():
		s.lostAt, s.suspect = now, false
	case s.opaque:
		s.err = err
	default:
		s.lostAt, s.suspect = now, true
	}
}

// over reports whether it is time for the watch to end.
func (s *stream) over(now time.Time) bool {
	if s.deadline.IsZero() {
		return now.Sub(s.opened) > unboundedWatch-endSlack
	}
	return now.After(s.deadline.Add(-endSlack))
}

// take passes a frame on, after the view has got to know it.
func (s *stream) take(f *wire.Frame) {
	if f.Err != nil || s.opaque || f.Type == "" {
		s.relayUnread(f)
		return
	}
	s.partial = f.More
	if f.Type == watch.Error {
		s.failed(f)
		return
	}
	s.tries = 0
	switch f.Type {
	case watch.Bookmark:
		s.item = f.Meta.TypeMeta()
		s.bookmark(f)
	case watch.Added, watch.Modified, watch.Deleted:
		if !s.event(f) {
			return
		}
	}
	s.out = append(s.out, f.Raw...)
}

// relayUnread passes on what is no event. What was in it is not known, so neither is
// the view's state after it.
func (s *stream) relayUnread(f *wire.Frame) {
	if f.More && errors.Is(f.Err, wire.ErrTruncated) && !s.partial && !s.opaque {
		return // the stream has broken off within an event, which comes again
	}
	s.out = append(s.out, f.Raw...)
	if f.Err == nil && !s.opaque {
		return // blanks
	}
	s.partial = f.More
	if f.More && !errors.Is(f.Err, wire.ErrTooLarge) {
		s.opaque = true
	}
	s.invalidate()
}

// invalidate is called when an event has passed that could not be read: what it did to
// the view, and at which version, is not known.
func (s *stream) invalidate() {
	s.endStage()
	if s.at != "" {
		s.gap = true
		s.watches.Records.Forgot(s.query.UserResource(), versions.Following(s.view.Highest.Version()))
		s.view.Invalidate()
		s.watches.Lister.Refresh(s.view, s.req)
	}
}

// from is the version up to which everything before an event at a version is known.
func (s *stream) from(version string) string {
	if s.gap {
		s.gap = false
		return version // what was before it is not: a list has to have it
	}
	return s.at
}

// event feeds the view. It returns false for what the client has seen already.
func (s *stream) event(f *wire.Frame) bool {
	name, version := query.MemberName(string(f.Meta.Namespace), string(f.Meta.Name)), string(f.Meta.ResourceVersion)
	if !versions.Valid(version) || len(f.Meta.Name) == 0 || !s.repr.Holds(f.Meta.TypeMeta()) {
		s.invalidate()
		return true
	}
	s.item = f.Meta.TypeMeta()
	if s.initial {
		s.begin(f, name, version)
		return true
	}
	if s.resumed && versions.Compare(version, s.at) <= 0 {
		return false
	}
	s.held.overtaken(name)
	c := &view.Change{Name: name, Version: version}
	if f.Type != watch.Deleted {
		bare, err := wire.AppendBare(nil, s.repr.Encoding, f.Object)
		if err != nil { // a frame that was read has an object that is one
			s.invalidate()
			return true
		}
		c.Object = bare
	}
	shown := ""
	if f.Type == watch.Deleted {
		shown = s.view.Shown(name)
	}
	a := s.view.Apply(s.from(version), c)
	if a == view.Gap {
		s.watches.Lister.Refresh(s.view, s.req)
	}
	switch {
	case f.Type == watch.Deleted:
		s.left(string(f.Meta.Namespace), string(f.Meta.Name), version, types.UID(f.Meta.UID))
		s.watches.Views.Outlived(s.view, name, shown)
	case a == view.Gap || a == view.Buffered:
		s.keepApart(c)
	}
	s.at = version
	return true
}

// begin takes over an initial event.
func (s *stream) begin(f *wire.Frame, name, version string) {
	s.view.Highest.Raise(version)
	switch {
	case f.Type == watch.Deleted:
		if s.stage != nil {
			s.stage.Remove(name)
		}
		s.left(string(f.Meta.Namespace), string(f.Meta.Name), version, types.UID(f.Meta.UID))
		return
	case s.stage == nil:
		s.watches.Records.Forgot(s.query.UserResource(), version)
		return
	}
	if err := s.stage.Add(name, version, f.Object); err != nil {
		s.watches.looked(err)
		s.endStage()
		return
	}
	s.describe(f)
}

// describe notes what the list would say of itself, if there were one.
func (s *stream) describe(f *wire.Frame) {
	if s.stage.Meta.Kind != "" {
		return
	}
	if m, err := wire.ListMetaOf(s.repr.Encoding, f.Object); err == nil {
		s.stage.Meta, s.stage.Kind = m, string(f.Meta.Kind)
	}
}

// bookmark moves the view's version, and ends the initial events: whatever came
// before a bookmark is all there is up to it.
func (s *stream) bookmark(f *wire.Frame) {
	version := string(f.Meta.ResourceVersion)
	if !versions.Valid(version) {
		return
	}
	if !s.initial {
		if versions.Compare(version, s.at) < 0 {
			return
		}
		if s.view.Advance(s.from(version), version) == view.Gap {
			s.watches.Lister.Refresh(s.view, s.req)
		}
		s.at, s.marked = version, s.watches.Now()
		return
	}
	if s.query.InitialEvents && !f.InitialEventsEnd {
		return
	}
	s.initial, s.at = false, version
	s.view.Template.Store(s.req)
	if s.stage == nil {
		s.view.SawState(version)
		s.watches.Lister.Refresh(s.view, s.req)
		return
	}
	s.describe(f)
	s.watches.Lister.Commit(s.query, s.req, s.stage, version)
	s.endStage()
}

// failed is called with an ERROR. One that answers a watch which the client does
// not know of is not for the client.
func (s *stream) failed(f *wire.Frame) {
	if s.resumed && s.tries > 0 {
		s.detach() //nolint:errcheck // it is given up
		if f.Code == http.StatusGone {
			s.relist()
		}
		return
	}
	s.out = append(s.out, f.Raw...)
	s.detach() //nolint:errcheck // an apiserver ends the stream here
	s.err = io.EOF
}

// expire tells the client to list again, and ends the stream.
func (s *stream) expire() {
	status := apierrors.NewResourceExpired(fmt.Sprintf("edgehub: too old resource version: %s; list again", s.at)).Status()
	out, err := wire.AppendError(s.out, s.repr.Encoding, status)
	s.out, s.err = out, io.EOF
	if err != nil {
		s.err = err
	}
}

// context is that of the client's request.
func (s *stream) context() context.Context { return s.req.Context() }

// keepApart keeps the object of an event that its view could not take, so that a GET does
// not show an older one should the cloud go away before the view has caught up. Of a view
// that was evicted nothing is kept; older copies are in doubt then.
func (s *stream) keepApart(c *view.Change) {
	if s.watches.Views.Holds(s.query.UserResource(), c.Name) {
		s.watches.Records.Doubt(s.query.UserResource(), c.Name, versions.Preceding(c.Version))
	}
	if s.view.Position() == "" {
		return
	}
	key := s.view.Key
	key.Namespace, key.Labels, key.Fields, key.Single = "", "", "", true
	v := s.watches.Views.Acquire(key)
	defer v.Release()
	v.KeepSingle(s.item, c.Name, "", c.Version, c.Object)
	s.watches.Views.Fit(v)
}

// left notes a DELETED event. It says that the object has left what the watch selects; that
// it is gone only where it could not leave in another way.
func (s *stream) left(namespace, name, version string, uid types.UID) {
	of := s.query.UserResource()
	if !s.view.Key.Lasting() {
		s.watches.Records.Seen(of, query.MemberName(namespace, name), version, uid)
		return
	}
	if !s.view.Lacks(namespace, name, version) || s.watches.Views.Holds(of, query.MemberName(namespace, name)) {
		s.watches.Views.Gone(of, query.MemberName(namespace, name), version, uid, true)
	}
}
