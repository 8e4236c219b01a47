package watch

import (
	"bytes"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/edgehub-io/edgehub/cache/derived"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/relist"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// relist lists the view, and sends the client the difference as events if possible; otherwise
// the client has to list again.
func (s *stream) relist() {
	f, err := s.watches.Relist(s.view, s.req, s.lostAt, false)
	if err == nil {
		wait, cancel := s.untilEnd()
		defer cancel()
		select {
		case <-f.Done:
			err = f.Err
		case <-wait.Done():
			return // waitUpstream handles it
		}
	}
	switch {
	case relist.IsFinal(err): // the client gets the error when it retries
		s.err = io.EOF
		return
	case relist.IsPermanent(err):
		s.expire()
		return
	}
	if err != nil {
		s.watches.Log.Debug("view could not be listed, for a watch to go on; it is tried again", "watch", s.query.String(), "err", err)
		return
	}
	if !s.follows(f) {
		s.expire()
		return
	}
	s.relayDiff(f.Events)
	s.at = f.To
	s.sendBookmark()
	s.lostAt, s.suspect = s.watches.Now(), false
}

// relayDiff relays the events of a relist.
func (s *stream) relayDiff(events []byte) {
	frames, err := wire.NewFrameReader(bytes.NewReader(events), s.repr.Encoding, wire.FrameOptions{})
	if err != nil || !derived.ShowsSlices(s.view) {
		s.out = append(s.out, events...)
		return
	}
	for err == nil {
		var f wire.Frame
		if f, err = frames.Next(); err == nil {
			s.held.forget(query.MemberName(string(f.Meta.Namespace), string(f.Meta.Name)))
			s.relayEvent(&f)
		}
	}
}

// follows reports whether a relist's events apply to the client's version.
func (s *stream) follows(f *relist.Call) bool {
	return f.From != "" && versions.Compare(f.Changed, s.at) <= 0 && versions.Compare(s.at, f.From) <= 0
}

// mustRelist reports whether the stream is known to be unable to resume from its version:
// another watch of this view has been relisted, or the apiservers' store is older than what
// the client has seen.
func (s *stream) mustRelist() (bool, error) {
	if f := s.watches.Ended(s.view, s.lostAt); f != nil && s.follows(f) && versions.Compare(s.at, f.To) != 0 {
		return true, nil
	}
	if !s.suspect {
		return false, nil
	}
	ahead, err := s.watches.IsAhead(s.context(), s.view, s.at, s.req, s.lostAt)
	if relist.IsFinal(err) { // the user may be allowed to watch but not to list
		return false, nil
	}
	return ahead, err
}

// expire sends the event that makes the client list again, and ends the stream.
func (s *stream) expire() {
	status := apierrors.NewResourceExpired(fmt.Sprintf("edgehub: too old resource version: %s; list again", s.at)).Status()
	s.out, s.err = wire.AppendError(s.out, s.repr.Encoding, status), io.EOF
}
