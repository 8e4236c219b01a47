package watch

import (
	"errors"

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
	c := &view.Change{Name: name, Version: version}
	if f.Type != watch.Deleted {
		bare, err := wire.AppendBare(nil, s.repr.Encoding, f.Object)
		if err != nil { // cannot happen: the frame was decoded
			return s.invalidate()
		}
		c.Object = bare
	}
	before := ""
	if f.Type == watch.Deleted {
		before = s.view.Current(name).Version
	}
	a := s.feed.Apply(c, shown)
	switch {
	case a == view.Ended:
		s.expire()
		return false
	case f.Type == watch.Deleted:
		s.left(string(f.Meta.Namespace), string(f.Meta.Name), version, types.UID(f.Meta.UID))
		s.watches.Views.RecordLeft(s.view, name, before)
	case a == view.Gap && shown:
		s.keepApart(c)
	}
	if shown {
		s.held.forget(name)
		s.at = version
	}
	s.catchUp(a)
	return shown
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
	s.view.Highest.Raise(version)
	if f.Type == watch.Deleted {
		if s.builder != nil {
			s.builder.Remove(name)
		}
		s.left(string(f.Meta.Namespace), string(f.Meta.Name), version, types.UID(f.Meta.UID))
		return
	}
	// The client has the object now, and the cloud may be lost before the view has it.
	s.watches.Records.SeenUncached(s.query.UserResource(), version)
	if s.builder == nil {
		return
	}
	if err := s.builder.Add(name, version, f.Object); err != nil {
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
	a := s.feed.Apply(&view.Change{Version: version}, shown)
	if a == view.Ended {
		s.expire()
		return false
	}
	if shown {
		s.at, s.marked = version, s.watches.Now()
	}
	s.catchUp(a)
	return shown || !s.resumed
}

// endInitial commits the initial events.
func (s *stream) endInitial(f *wire.Frame, version string) {
	s.initial, s.at = false, version
	if !s.held.IsEmpty() {
		s.startSettling()
	}
	if s.builder == nil {
		s.view.MarkSeen(version)
	} else {
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

// keepApart caches the object of an event after a gap in a Single view, so that a GET does not
// return an older one if the cloud goes away before the view has caught up. If the view was
// evicted, the object is not cached, and older copies are in doubt.
func (s *stream) keepApart(c *view.Change) {
	lost := s.view.Position() == ""
	if lost || s.watches.Views.Holds(s.query.UserResource(), c.Name) {
		s.watches.Records.Doubt(s.query.UserResource(), c.Name, versions.Preceding(c.Version))
	}
	if lost {
		return
	}
	key := s.view.Key
	key.Namespace, key.Labels, key.Fields, key.Single = "", "", "", true
	v := s.watches.Views.Acquire(key)
	defer v.Release()
	v.KeepSingle(s.item, c.Name, "", c.Version, c.Object)
	s.watches.Views.EnforceLimit(v)
}

// left records a DELETED event: the object no longer matches the watch's query. It proves a
// deletion only if objects cannot leave the query in another way.
func (s *stream) left(namespace, name, version string, uid types.UID) {
	of := s.query.UserResource()
	if !s.view.Key.Lasting() {
		s.watches.Records.Seen(of, query.MemberName(namespace, name), version, uid)
		return
	}
	if !s.view.ProvesAbsent(namespace, name, version) || s.watches.Views.Holds(of, query.MemberName(namespace, name)) {
		s.watches.Views.Gone(of, query.MemberName(namespace, name), version, uid, true)
	}
}
