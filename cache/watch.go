package cache

import (
	"net/http"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// watch answers with a stream that is held open until the cloud is back.
func (x *exchange) watch() (*http.Response, error) {
	q := x.query
	src, err := x.source()
	if err != nil {
		return x.status(err)
	}
	s := newStream(x, src.repr)
	s.endStage()
	s.lostAt, s.suspect, s.outage = s.opened, true, -1
	s.item = src.itemType()
	s.view.template.Store(s.req)
	src.view.touch(x.cache.now())
	if err := s.openOffline(src, q); err != nil {
		s.release()
		return x.status(err)
	}
	return answer(x.req, http.StatusOK, src.repr.WatchContentType(), -1, s), nil
}

// openOffline brings the stream to the view's version.
func (s *stream) openOffline(src *source, q *query) error {
	snap, err := src.view.snapshot()
	if err != nil {
		return err
	}
	if snap == nil {
		return errNeverRead
	}
	version, changed := snap.version, snap.changed
	if s.initial {
		if isVersion(q.version) && compare(q.version, version) > 0 {
			snap.reader.Close()
			return tooLarge(q.version, version)
		}
		if s.item.Kind == "" && len(snap.members) > 0 {
			snap.reader.Close()
			return errNeverRead
		}
		s.replay = &replay{source: src, snapshot: snap, end: q.initialEvents}
		s.initial, s.at = false, version
		return nil
	}
	snap.reader.Close()
	switch {
	case compare(s.at, changed) < 0:
		s.expire()
	case compare(s.at, version) < 0: // nothing has happened in between
		s.at = version
		s.mark()
	}
	return nil
}

// replay is initial events from the cache.
type replay struct {
	source   *source
	snapshot *snapshot
	end      bool // with the bookmark that ends them
}

// repeat puts the next initial events into out.
func (s *stream) repeat() {
	r := s.replay
	err := r.snapshot.next(func(o store.Object) error {
		bare, err := r.source.object(o.Bytes)
		if err == nil {
			s.out = wire.AppendEvent(s.out, s.repr.Encoding, watch.Added, s.item, bare)
		}
		return err
	})
	if err != nil {
		s.err = r.source.view.broken(r.snapshot.version, err)
		return
	}
	if len(r.snapshot.members) > 0 {
		return
	}
	if r.end {
		s.out = wire.AppendBookmark(s.out, s.repr.Encoding, s.item, r.snapshot.version, true)
	}
	r.snapshot.reader.Close()
	s.replay = nil
}
