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

// relay reads frames from upstream until there is output for the client, and no further
// frame is ready. What is void of derived objects comes first.
func (s *stream) relay() {
	if s.revertShown() {
		return
	}
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

// broken is called when upstream has ended. The stream ends, too, if the watch was to end now,
// or the client has no version to resume from; otherwise it is held open.
func (s *stream) broken(err error) {
	now := time.Now()
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
		s.loseTo(false)
	case s.opaque:
		s.err = err
	default:
		s.loseTo(true)
	}
}

// loseTo has the stream wait, and resume. suspect means that the apiservers' store may be another then.
func (s *stream) loseTo(suspect bool) {
	s.seen, s.suspect, s.unchecked = s.watches.checks.see(s.view), suspect, 0
}

// over reports whether the watch has reached its timeout.
func (s *stream) over(now time.Time) bool {
	if s.deadline.IsZero() {
		return now.Sub(s.opened) > unboundedWatch-endSlack
	}
	return now.After(s.deadline.Add(-endSlack))
}

// take relays a frame, after applying it to the view.
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
	s.resetRetry()
	if s.apply(f) && s.err == nil { // else the client has to list
		s.relayEvent(f)
	}
}

// apply applies an event or bookmark to the view. It returns false for one that the client has seen.
func (s *stream) apply(f *wire.Frame) bool {
	if f.Type == watch.Bookmark {
		s.item = f.Meta.TypeMeta()
		return s.bookmark(f)
	}
	return s.event(f)
}

// relayUnread relays a frame that is no readable event. The state of the view after it is
// unknown.
func (s *stream) relayUnread(f *wire.Frame) {
	if f.More && errors.Is(f.Err, wire.ErrTruncated) && !s.partial && !s.opaque {
		return // upstream was lost within an event, which will be sent again
	}
	unread := f.Err != nil || s.opaque // else it is whitespace
	if unread && !s.invalidate() {
		return
	}
	s.out = append(s.out, f.Raw...)
	if !unread {
		return
	}
	s.partial = f.More
	if f.More && !errors.Is(f.Err, wire.ErrTooLarge) {
		s.opaque = true
	}
}

// invalidate is called for an unreadable event, whose effect on the view is unknown. It returns false if the client has
// to list, because it may have that event already: upstream was opened below its version.
func (s *stream) invalidate() bool {
	s.endBuilder()
	if s.at == "" {
		return true
	}
	below := s.resumed && !s.partial && !s.opaque && versions.Compare(s.feed.Position(), s.at) < 0
	s.watches.Views.Floor(s.query.UserResource(), versions.Following(s.watches.Views.Highest(s.query.Resource).Version()))
	s.feed.Unread()
	if below {
		s.expire()
	}
	return !below
}

// failed handles an ERROR event, which ends the stream. One right after the hub has opened the watch again is not relayed
// to the client, unless it has to list.
func (s *stream) failed(f *wire.Frame) {
	retries := s.resumed && s.retryAfter > 0
	s.detach() //nolint:errcheck // an apiserver ends the stream here
	switch {
	case retries && f.Code == http.StatusGone:
		s.forgotten(s.openedAt)
	case !retries:
		s.out, s.err = append(s.out, f.Raw...), io.EOF
	}
}
