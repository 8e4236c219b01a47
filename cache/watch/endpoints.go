package watch

import (
	"bytes"
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/cache/localendpoints"
	"github.com/edgehub-io/edgehub/cache/offline"
	"github.com/edgehub-io/edgehub/cache/overlay"
	"github.com/edgehub-io/edgehub/cache/pause"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// EndpointSlices follow the node's pods while the cloud is away: held.go shows them like the node's
// status. This file has what differs. After the return, events of the cloud are changed, too, until
// the cloud has caught up; see package localendpoints.

// isAway reports whether the stream's user can reach no apiserver.
func (s *stream) isAway() bool {
	select {
	case <-s.watches.Up.Lost(s.context()):
		return true
	default:
		return false
	}
}

// laysEndpoints reports whether the stream changes events of the cloud.
func (s *stream) laysEndpoints() bool {
	return offline.ShowsEndpoints(s.view) && s.watches.Answers.Endpoints.Settling()
}

// relayEvent relays a frame, with an EndpointSlice as the node's pods make it.
func (s *stream) relayEvent(f *wire.Frame) {
	changes := f.Type == watch.Added || f.Type == watch.Modified
	if !changes || !s.laysEndpoints() || !s.relayLaid(f) {
		s.out = append(s.out, f.Raw...)
	}
}

// relayLaid relays an EndpointSlice that differs from the cloud's, and returns false if it does not.
func (s *stream) relayLaid(f *wire.Frame) bool {
	bare, err := wire.AppendBare(nil, s.repr.Encoding, f.Object)
	if err != nil {
		return false
	}
	cached := overlay.Object{Type: f.Meta.TypeMeta(), Encoding: s.repr.Encoding, Bare: bare}
	u := s.watches.Answers.Endpoints.Over(cached)
	if u == nil {
		return false
	}
	laid, err := u.Lay(cached, false)
	if err != nil {
		s.watches.Log.Error("EndpointSlice cannot be computed for a watch", "watch", s.query.String(), "err", err)
		return false
	}
	s.out = wire.AppendEvent(s.out, s.repr.Encoding, f.Type, f.Meta.TypeMeta(), laid.Bare)
	s.held.note(query.MemberName(u.Key.Namespace, u.Key.Name), u, true)
	if s.at != "" && s.upstream != nil && s.held.stop == nil {
		s.startSettling()
	}
	return true
}

// relayDiff relays the events of a relist.
func (s *stream) relayDiff(events []byte) {
	frames, err := wire.NewFrameReader(bytes.NewReader(events), s.repr.Encoding, wire.FrameOptions{})
	if err != nil || !s.laysEndpoints() {
		s.out = append(s.out, events...)
		return
	}
	for err == nil {
		var f wire.Frame
		if f, err = frames.Next(); err == nil {
			s.held.overtaken(query.MemberName(string(f.Meta.Namespace), string(f.Meta.Name)))
			s.relayEvent(&f)
		}
	}
}

// revertExcept shows the cached slices again whose updates have ended, while the cloud is away: the
// pods are as they were.
func (s *stream) revertExcept(src *offline.Source, updates []*overlay.Update) {
	if !s.watches.Answers.Endpoints.IsAway() {
		return // it is about to be
	}
	current := map[string]bool{}
	for _, u := range updates {
		current[query.MemberName(u.Key.Namespace, u.Key.Name)] = true
	}
	for name, last := range s.held.shown {
		if !current[name] {
			delete(s.held.shown, name)
			s.settleObject(src, name, last)
		}
	}
}

// settleEndpoints is settleLater for EndpointSlices. What is void at the return is reverted at once.
func (s *stream) settleEndpoints() {
	src, before := s.statusSource(), len(s.out)
	for name, last := range s.held.shown {
		if src != nil && localendpoints.EndsAtReturn(last.update) {
			delete(s.held.shown, name)
			s.settleObject(src, name, last)
		}
	}
	if len(s.out) > before {
		s.sendBookmark()
	}
	if len(s.held.shown) > 0 {
		s.startSettling()
	}
}

// startSettling closes upstream when the slices that were shown have to be reverted to those of the
// cloud; see settleLater.
func (s *stream) startSettling() {
	ctx, cancel := context.WithCancel(s.context())
	body, due, endpoints := s.upstream, &atomic.Bool{}, s.watches.Answers.Endpoints
	s.held.due, s.held.stop = due, cancel
	go func() {
		for pause.Sleep(ctx, settleSoon) {
			if endpoints.IsAway() || endpoints.Settling() {
				continue
			}
			due.Store(true)
			_ = body.Close() // ends the Read of relay
			return
		}
	}()
}
