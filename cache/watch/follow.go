package watch

import (
	"context"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// accepted is called when an apiserver has accepted the watch at a version, which is empty if there are initial events.
// If the view is below that, the watch is opened again, at the view's version; if the view is lost, the client may
// have to list.
func (s *stream) accepted(from string) {
	s.view.Deny(false)
	if s.at == "" {
		return
	}
	s.feed.Open(from, s.cutter())
	if s.upstream == nil { // a WebSocket
		return
	}
	position := s.view.Position()
	switch {
	case s.mustList():
		s.expire()
	case position != "" && versions.Compare(position, from) < 0:
		s.rewind()
	default:
		s.settleLater()
		if position != "" && versions.Compare(position, from) > 0 && !s.resumed {
			s.watches.Verify(s.view, s.req)
		}
	}
}

// cutter returns the function that ends upstream for the feed. It is nil for a WebSocket: its client gets the bytes of the
// apiserver.
func (s *stream) cutter() func() {
	body := s.upstream
	if body == nil {
		return nil
	}
	return func() { _ = body.Close() } // ends the Read of relay
}

// catchUp is called when an event was applied. If the view has a state, but not what came before the event, the watch is
// opened again, at the view's version.
func (s *stream) catchUp(a view.Applied) {
	if a == view.Gap && s.upstream != nil && s.view.Position() != "" {
		s.rewind()
	}
}

// rewind has upstream opened again, at the view's version. The view may be lost by then.
func (s *stream) rewind() {
	s.detach() //nolint:errcheck // not needed any more
	s.loseTo(true)
	s.resetRetry()
}

// from returns the version at which the stream resumes: that of its client, or of its view, if this is lower. list means
// that the client has to list first.
func (s *stream) from() (version string, list bool) {
	if s.mustList() {
		return "", true
	}
	if p := s.view.Position(); p != "" && versions.Compare(p, s.at) < 0 {
		return p, false
	}
	return s.at, false
}

// mustList reports whether the client has to list: the store was restored, or its view is lost, and it is asked.
func (s *stream) mustList() bool {
	return s.feed.HasEnded() || s.view.Lost() && s.watches.Views.Ask(s.view)
}

// maxUnchecked is how often a stream asks for the apiservers' version before it resumes without: a client whose watch is held
// open gets no events meanwhile, and does not know.
const maxUnchecked = 5

// isAhead reports whether the stream is known to be unable to resume from its version, because the apiservers' store is
// older than what the client has seen. An error means that it should ask again.
func (s *stream) isAhead(ctx context.Context) (bool, error) {
	if !s.suspect {
		return false, nil
	}
	ahead, err := s.watches.checks.isAhead(ctx, s.seen, s.at, s.req)
	if err == nil {
		return ahead, nil
	}
	s.unchecked++
	if isFinal(err) || s.unchecked >= maxUnchecked && ctx.Err() == nil { // the user may be allowed to watch but not to list
		return false, nil
	}
	return false, err
}

// forgotten is called when the apiservers do not know the version any more at which upstream was to be opened. If it is the
// client's, the client lists. If it is the view's, which is lower, the view is lost: the client need not list what nobody
// commits, such as a page, or in another encoding. So it is asked once, and goes on from its own version.
func (s *stream) forgotten(from string) {
	if versions.Compare(from, s.at) >= 0 {
		s.expire()
		return
	}
	s.view.DropAt(from)
}

// expire sends the event that makes the client list again, and ends the stream. The client of a WebSocket is not reached:
// its stream applies nothing any more.
func (s *stream) expire() {
	if s.err != nil {
		return
	}
	s.detach() //nolint:errcheck // not needed any more
	s.out, s.err = wire.AppendError(s.out, s.repr.Encoding, expired(s.at).Status()), io.EOF
	s.watches.Expired()
}

// expired is the error that makes a client list again.
func expired(version string) *apierrors.StatusError {
	return apierrors.NewResourceExpired(fmt.Sprintf("edgehub: too old resource version: %s; list again", version))
}
