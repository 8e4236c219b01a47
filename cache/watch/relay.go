package watch

import (
	"errors"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/wire"
)

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
	s.endBuilder()
	if s.at != "" {
		s.gap = true
		s.watches.Records.Forgot(s.query.UserResource(), versions.Following(s.view.Highest.Version()))
		s.view.Invalidate()
		s.watches.Lister.Refresh(s.view, s.req)
	}
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
