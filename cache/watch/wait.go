package watch

import (
	"context"
	"io"

	"github.com/edgehub-io/edgehub/cache/offline"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// waitUpstream waits until there is output for the client, or an apiserver can be reached.
func (s *stream) waitUpstream() {
	ctx := s.context()
	if s.settleStatus() || s.showStatus() {
		return
	}
	if !s.watches.Now().Before(s.marked.Add(bookmarkEvery)) {
		s.sendBookmark()
		return
	}
	until := s.marked.Add(bookmarkEvery)
	if !s.deadline.IsZero() && s.deadline.Before(until) {
		until = s.deadline
	}
	wait, cancel := context.WithTimeout(ctx, until.Sub(s.watches.Now()))
	defer cancel()
	err := s.awaitUp(wait)
	if err == nil {
		err = s.resume(wait)
	}
	switch {
	case ctx.Err() != nil:
		s.err = context.Cause(ctx)
	case err != nil && !s.deadline.IsZero() && !s.watches.Now().Before(s.deadline):
		s.err = io.EOF // like an apiserver at the timeout
	}
}

// awaitUp returns nil when an apiserver can be reached. It returns early when the node's own
// status has changed.
func (s *stream) awaitUp(ctx context.Context) error {
	if !offline.ShowsStatus(s.view) {
		return s.watches.Up.WaitUp(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer s.watches.Overlay.OnChange(cancel)()
	if s.watches.Overlay.Revision() != s.held.looked {
		return context.Canceled // changed before OnChange
	}
	return s.watches.Up.WaitUp(ctx)
}

// sendBookmark sends a bookmark, if the client has requested them and there is a version.
func (s *stream) sendBookmark() {
	s.marked = s.watches.Now()
	if !s.query.Bookmarks || s.at == "" {
		return
	}
	if s.item.Kind == "" {
		s.item = s.view.ItemType()
	}
	if s.item.Kind != "" {
		s.out = wire.AppendBookmark(s.out, s.repr.Encoding, s.item, s.at, false)
	}
}
