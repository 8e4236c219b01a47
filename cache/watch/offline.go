package watch

import (
	"net/http"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/cache/answer"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Answer answers a watch while the cloud is away, with a stream that is held open.
func (w *Watches) Answer(r *answer.Request) (*http.Response, error) {
	src, snap, err := r.Read()
	if err != nil {
		return answer.ErrorResponse(r.HTTP, err)
	}
	s := w.newStream(r.HTTP, r.Query, src.Repr, w.Views.Began(r.Query.Key(src.Repr)))
	s.endBuilder()
	s.loseTo(true)
	s.outage = -1
	s.item = src.ItemType()
	src.View.Touch()
	if err := s.openOffline(r, src, snap); err != nil {
		s.release()
		return answer.ErrorResponse(r.HTTP, err)
	}
	return answer.Response(r.HTTP, http.StatusOK, src.Repr.WatchContentType(), -1, s), nil
}

// openOffline starts the stream with initial events, or at the version of a snapshot, which it closes.
func (s *stream) openOffline(r *answer.Request, src *answer.Source, snap *view.Snapshot) (err error) {
	q := r.Query
	s.shown.source = src
	switch {
	case s.initial && versions.Valid(q.Version) && versions.Compare(q.Version, snap.Version) > 0:
		err = answer.TooLargeVersion(q.Version, snap.Version)
	case s.initial && s.item.Kind == "" && len(snap.Members) > 0:
		err = view.ErrNeverRead
	case s.initial:
		pieces, err := r.Pieces(src, snap)
		if err != nil {
			snap.Close()
			return err
		}
		s.replay = &replay{Pieces: pieces, end: q.InitialEvents}
		s.shown.NoteAll(s.replay.Derived)
		s.initial, s.at = false, snap.Version
		s.replayInitial() // damage in the first piece is a status, and no stream that breaks off
		return s.err      // replay closes the snapshot
	case versions.Compare(s.at, snap.Version) >= 0: // it waits for what comes
	case snap.UnchangedSince(s.at):
		s.at = snap.Version
		s.sendBookmark()
	default:
		s.expire()
	}
	snap.Close()
	return err
}

// replay sends initial events from the cache.
type replay struct {
	answer.Pieces

	end bool // with the bookmark that ends them
}

// replayInitial encodes the next initial events, or the bookmark that ends them.
func (s *stream) replayInitial() {
	r := s.replay
	if len(r.Snapshot.Members) > 0 {
		_, s.err = r.Next(func(w *answer.Workspace, object []byte) error {
			w.Out = wire.AppendEvent(w.Out, s.repr.Encoding, watch.Added, s.item, object)
			return nil
		})
		return
	}
	if r.end {
		s.out = wire.AppendBookmark(s.out, s.repr.Encoding, s.item, r.Snapshot.Version, true)
	}
	r.Close()
	s.replay = nil
}
