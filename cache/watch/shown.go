package watch

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/cache/answer"
	"github.com/edgehub-io/edgehub/cache/derived"
	"github.com/edgehub-io/edgehub/cache/pause"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// settleEvery is how often a watch looks whether the cloud has caught up: seldom enough for pending
// events of the cloud to come first.
const settleEvery = time.Second

// shown is what a watch has shown of derived objects.
type shown struct {
	*derived.Shown

	source *answer.Source // of a watch that was opened offline; nil otherwise
	stop   func()         // while relaying, if something was shown: stops what will set due
	due    *atomic.Bool   // set when it is time to revert what was shown
}

func (h *shown) stopSettling() {
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

// forget is called when the client gets an event of the cloud for an object.
func (h *shown) forget(name string) {
	if h.Forget(name); h.IsEmpty() {
		h.stopSettling()
	}
}

// derivedSource returns the source of the stream's objects, or nil. A view that is older than
// the client's version is not used (after a kill of the hub, for example): the client may
// have newer objects. One that is only older than what other clients have seen is.
func (s *stream) derivedSource() *answer.Source {
	if !derived.Shows(s.view) {
		return nil
	}
	for _, src := range []*answer.Source{{View: s.view, Repr: s.repr}, s.shown.source} {
		if src != nil && !src.View.Denied() && src.View.Position() != "" && versions.Compare(src.View.Position(), s.at) >= 0 {
			return src
		}
	}
	return nil
}

// isAway reports whether the stream's user can reach no apiserver.
func (s *stream) isAway() bool {
	select {
	case <-s.watches.Up.Lost(s.context()):
		return true
	default:
		return false
	}
}

// showDerived writes events for derived objects that the client does not have while the cloud is away. It returns false if
// there are none.
func (s *stream) showDerived() bool {
	s.shown.due = nil
	src := s.derivedSource()
	var of *derived.Selected
	if src != nil && s.isAway() {
		of = src.Selected()
	}
	return s.send(src, s.shown.Changes(of, s.at))
}

// revertShown writes events that show as they are cached derived objects that are void while an apiserver answers. It
// returns false if there are none; otherwise there may be more.
func (s *stream) revertShown() bool {
	if s.shown.IsEmpty() || s.initial || s.opaque || s.partial {
		return false
	}
	src := s.derivedSource()
	return src != nil && s.send(src, s.shown.Ended(src.Selected(), s.at))
}

// send writes events for derived objects, and returns false if there are none. A bookmark follows, because
// clients resume from the version of the last event, and the objects have old versions.
func (s *stream) send(src *answer.Source, events iter.Seq2[derived.Event, error]) bool {
	before := len(s.out)
	for e, err := range events {
		if err != nil {
			s.err = errors.Join(err, s.err)
		} else if s.sendDerived(src, e); len(s.out) >= maxBuffered {
			break
		}
	}
	if len(s.out) == before {
		return s.err != nil
	}
	s.sendBookmark()
	return true
}

func (s *stream) sendDerived(src *answer.Source, e derived.Event) {
	bare, err := src.Object(e.Update, e.Cached)
	if err != nil {
		s.watches.Log.Error("a derived object cannot be shown to a watch", "watch", s.query.String(), "err", err)
		return
	}
	if s.item.Kind == "" {
		s.item = src.ItemType()
	}
	s.out = wire.AppendEvent(s.out, s.repr.Encoding, watch.Modified, s.item, bare)
}

// relayEvent relays a frame. Until the cloud has caught up, an EndpointSlice is relayed as the node's
// pods make it.
func (s *stream) relayEvent(f *wire.Frame) {
	changes := f.Type == watch.Added || f.Type == watch.Modified
	if !changes || !derived.ShowsSlices(s.view) || !s.watches.Derived.Settling() || !s.relayDerived(f) {
		s.out = append(s.out, f.Raw...)
	}
}

// relayDerived relays an EndpointSlice that differs from the cloud's, and returns false if it does not.
func (s *stream) relayDerived(f *wire.Frame) bool {
	bare, err := wire.AppendBare(nil, s.repr.Encoding, f.Object)
	if err != nil {
		return false
	}
	o, u := s.watches.Derived.Get(s.query, view.Object{Type: f.Meta.TypeMeta(), Repr: s.repr, Bare: bare})
	if u == nil {
		return false
	}
	s.out = wire.AppendEvent(s.out, s.repr.Encoding, f.Type, f.Meta.TypeMeta(), o.Bare)
	s.shown.Note(u)
	if s.at != "" && s.upstream != nil && s.shown.stop == nil {
		s.startSettling()
	}
	return true
}

// settleLater is called when upstream was attached. relay reverts what is void at the return of the cloud, and the rest
// when the cloud has had its time. An event of the cloud for an object reverts it, too.
func (s *stream) settleLater() {
	if s.unsure && derived.Shows(s.view) {
		s.shown.NoteRecent(s.view, s.at)
	}
	s.unsure = false
	s.shown.stopSettling()
	if !s.shown.IsEmpty() && s.watches.Derived.KeepsShown(s.view) {
		s.startSettling()
	}
}

// startSettling closes upstream when what was shown has to be reverted to what the cloud has: the stream resumes at once, and
// relay reverts them.
func (s *stream) startSettling() {
	ctx, cancel := context.WithCancel(s.context())
	body, due, objects, v := s.upstream, &atomic.Bool{}, s.watches.Derived, s.view
	s.shown.due, s.shown.stop = due, cancel
	go func() {
		for pause.Sleep(ctx, settleEvery) {
			if objects.KeepsShown(v) {
				continue
			}
			due.Store(true)
			_ = body.Close() // ends the Read of relay
			return
		}
	}()
}

// isSettling reports whether startSettling has closed upstream.
func (s *stream) isSettling() bool { return s.shown.due != nil && s.shown.due.Load() }
