package watch

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// event applies an event to the view. It returns false for one that the client has seen.
func (s *stream) event(f *wire.Frame) (shown bool) {
	name, version := query.MemberName(string(f.Meta.Namespace), string(f.Meta.Name)), string(f.Meta.ResourceVersion)
	if !versions.Valid(version) || len(f.Meta.Name) == 0 || !s.repr.Holds(f.Meta.TypeMeta()) {
		return s.invalidate()
	}
	s.item = f.Meta.TypeMeta()
	if s.initial {
		return s.begin(f, name, version)
	}
	shown = !s.resumed || versions.Compare(version, s.at) > 0
	ev, ok := s.decoded(f)
	if !ok {
		return s.invalidate()
	}
	a := s.feed.Apply(ev, shown)
	if a == view.Ended {
		s.expire()
		return false
	}
	if shown {
		s.shown.forget(name)
		s.at = version
	}
	s.catchUp(a)
	return shown
}

// decoded returns an event for the view, or false if it cannot be read.
func (s *stream) decoded(f *wire.Frame) (*view.Event, bool) {
	m := &f.Meta
	ev := &view.Event{
		Namespace: string(m.Namespace), Name: string(m.Name), Version: string(m.ResourceVersion), UID: types.UID(m.UID), Type: m.TypeMeta(), Encoding: s.repr.Encoding,
	}
	if f.Type == watch.Deleted {
		return ev, true
	}
	var err error
	ev.Object, err = wire.AppendBare(nil, s.repr.Encoding, f.Object) // the frame was decoded
	return ev, err == nil
}

// begin adds an initial event. It returns false if the client has to begin again.
func (s *stream) begin(f *wire.Frame, name, version string) bool {
	if s.feed.HasEnded() {
		s.expire()
		return false
	}
	s.addInitial(f, name, version)
	return true
}

func (s *stream) addInitial(f *wire.Frame, name, version string) {
	ev, ok := s.decoded(f)
	if !ok {
		return
	}
	if f.Type == watch.Deleted {
		if s.builder != nil {
			s.builder.Remove(name)
		}
		s.feed.Deleted(ev)
		return
	}
	if s.anyState {
		s.feed.Shown(ev)
		return
	}
	s.view.Raise(version)
	// The client has the object now, and the cloud may be lost before the view has it.
	s.watches.Views.Floor(s.query.UserResource(), version)
	if s.builder == nil {
		return
	}
	if err := s.builder.Add(name, version, ev.UID, f.Object); err != nil {
		s.watches.logUnkept(err)
		s.endBuilder()
		if errors.Is(err, view.ErrListTooLarge) {
			s.view.DropTooLarge()
		}
		return
	}
	s.describe(f)
}

// describe sets the metadata that a list of these objects would have.
func (s *stream) describe(f *wire.Frame) {
	if s.builder.Meta.Kind != "" {
		return
	}
	if m, err := wire.ListMetaOf(s.repr.Encoding, f.Object); err == nil {
		s.builder.Meta, s.builder.Kind = m, string(f.Meta.Kind)
	}
}

// bookmark advances the view's version, and ends the initial events: up to its version the
// stream is complete. It returns false for one that is older than what the client has.
func (s *stream) bookmark(f *wire.Frame) (shown bool) {
	version := string(f.Meta.ResourceVersion)
	if !versions.Valid(version) {
		return true
	}
	if s.initial {
		if !s.query.InitialEvents || f.InitialEventsEnd {
			s.endInitial(f, version)
		}
		return true
	}
	shown = versions.Compare(version, s.at) >= 0
	a := s.feed.Apply(&view.Event{Version: version}, shown)
	if a == view.Ended {
		s.expire()
		return false
	}
	if shown {
		s.at, s.marked = version, time.Now()
	}
	s.catchUp(a)
	return shown || !s.resumed
}

// endInitial commits the initial events.
func (s *stream) endInitial(f *wire.Frame, version string) {
	s.initial, s.at = false, version
	if !s.shown.IsEmpty() {
		s.startSettling()
	}
	switch {
	case s.anyState:
	case s.builder == nil:
		s.view.MarkSeen(version)
	default:
		s.describe(f)
		if s.watches.Views.Commit(s.builder, version) == view.Outdated && !s.builder.Consistent {
			s.watches.Verify(s.view, s.req)
		}
		s.endBuilder()
	}
	switch s.feed.Open(version, s.cutter()); {
	case s.feed.HasEnded():
		s.expire()
	case versions.Compare(s.view.Position(), version) < 0:
		s.catchUp(view.Gap)
	}
}
