package watch

import (
	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/cache/offline"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// replay sends initial events from the cache.
type replay struct {
	offline.Pieces

	end bool // with the bookmark that ends them
}

// replayInitial encodes the next initial events, or the bookmark that ends them.
func (s *stream) replayInitial() {
	r := s.replay
	if len(r.Snapshot.Members) > 0 {
		_, s.err = r.Next(func(w *offline.Workspace, object []byte) error {
			w.Out = wire.AppendEvent(w.Out, s.repr.Encoding, watch.Added, s.item, object)
			return nil
		})
		return
	}
	s.held.source.View.MarkServed()
	if r.end {
		s.out = wire.AppendBookmark(s.out, s.repr.Encoding, s.item, r.Snapshot.Version, true)
	}
	r.Close()
	s.replay = nil
}
