package cache

import (
	"net/http"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/cache/offline"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// watch answers with a stream that is held open until the cloud is back.
func (x *exchange) watch() (*http.Response, error) {
	src, err := x.ask().Source()
	if err != nil {
		return offline.ErrorResponse(x.req, err)
	}
	s := newStream(x, src.Repr)
	s.endStage()
	s.lostAt, s.suspect, s.outage = s.opened, true, -1
	s.item = src.ItemType()
	s.view.Template.Store(s.req)
	src.View.Touch(x.cache.now())
	if err := s.openOffline(x, src); err != nil {
		s.release()
		return offline.ErrorResponse(x.req, err)
	}
	return offline.Response(x.req, http.StatusOK, src.Repr.WatchContentType(), -1, s), nil
}

// openOffline brings the stream to the view's version.
func (s *stream) openOffline(x *exchange, src *offline.Source) error {
	q := x.query
	snap, err := src.View.Snapshot()
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
			return offline.TooLargeVersion(q.Version, version)
		}
		if s.item.Kind == "" && len(snap.Members) > 0 {
			snap.Close()
			return view.ErrNeverRead
		}
		status := x.cache.answers.WithStatus(src, snap)
		s.held.noteAll(&status)
		s.replay = &replay{Pieces: x.ask().Pieces(src, snap, status), end: q.InitialEvents}
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
	offline.Pieces

	end bool // with the bookmark that ends them
}

// repeat puts the next initial events into the replay's out, and at their end the
// bookmark into the stream's.
func (s *stream) repeat() {
	r := s.replay
	if len(r.Snapshot.Members) > 0 {
		_, s.err = r.Next(func(w *offline.Workspace, object []byte) error {
			w.Out = wire.AppendEvent(w.Out, s.repr.Encoding, watch.Added, s.item, object)
			return nil
		})
		return
	}
	s.held.source.View.Give()
	if r.end {
		s.out = wire.AppendBookmark(s.out, s.repr.Encoding, s.item, r.Snapshot.Version, true)
	}
	r.Close()
	s.replay = nil
}
