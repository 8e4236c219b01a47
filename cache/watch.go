package cache

import (
	"net/http"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// watch answers with a stream that is held open until the cloud is back.
func (x *exchange) watch() (*http.Response, error) {
	src, err := x.ask().source()
	if err != nil {
		return answerError(x.req, err)
	}
	s := newStream(x, src.repr)
	s.endStage()
	s.lostAt, s.suspect, s.outage = s.opened, true, -1
	s.item = src.itemType()
	s.view.Template.Store(s.req)
	src.view.Touch(x.cache.now())
	if err := s.openOffline(x, src); err != nil {
		s.release()
		return answerError(x.req, err)
	}
	return answer(x.req, http.StatusOK, src.repr.WatchContentType(), -1, s), nil
}

// openOffline brings the stream to the view's version.
func (s *stream) openOffline(x *exchange, src *source) error {
	q := x.query
	snap, err := src.view.Snapshot()
	if err != nil {
		return err
	}
	if snap == nil {
		return view.ErrNeverRead
	}
	version, changed := snap.Version, snap.Changed
	s.held.source = src
	if s.initial {
		if versions.Valid(q.Version) && versions.Compare(q.Version, version) > 0 {
			snap.Close()
			return tooLarge(q.Version, version)
		}
		if s.item.Kind == "" && len(snap.Members) > 0 {
			snap.Close()
			return view.ErrNeverRead
		}
		status := x.cache.answers.withStatus(src, snap)
		s.held.noteAll(&status)
		s.replay = &replay{pieces: x.ask().pieces(src, snap, status), end: q.InitialEvents}
		s.initial, s.at = false, version
		return nil
	}
	snap.Close()
	switch {
	case versions.Compare(s.at, changed) < 0:
		s.expire()
	case versions.Compare(s.at, version) < 0: // nothing has happened in between
		s.at = version
		s.mark()
	}
	return nil
}

// replay is initial events from the cache.
type replay struct {
	pieces

	end bool // with the bookmark that ends them
}

// repeat puts the next initial events into the replay's out, and at their end the
// bookmark into the stream's.
func (s *stream) repeat() {
	r := s.replay
	if len(r.snapshot.Members) > 0 {
		_, s.err = r.next(func(w *workspace, object []byte) error {
			w.out = wire.AppendEvent(w.out, s.repr.Encoding, watch.Added, s.item, object)
			return nil
		})
		return
	}
	s.held.source.view.Give()
	if r.end {
		s.out = wire.AppendBookmark(s.out, s.repr.Encoding, s.item, r.snapshot.Version, true)
	}
	r.close()
	s.replay = nil
}
