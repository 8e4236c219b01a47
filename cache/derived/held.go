package derived

import (
	"iter"
	"maps"

	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
)

// Held is what a watch has shown of derived objects. It is level-triggered: one small record for each
// object, however often it changes. Like the watch it is for one goroutine.
type Held struct {
	Seen uint64 // the revision at the last call of Changes; see Objects.UntilChange

	objects  *Objects
	revision uint64             // the revision that has been shown completely
	shown    map[string]*Update // the last of each object
}

// Event is a MODIFIED that a watch has to send.
type Event struct {
	Update *Update     // nil: the object is shown as it is cached
	Cached view.Object // the cached object
}

// Hold returns the state of a watch that has shown nothing.
func (o *Objects) Hold() *Held { return &Held{objects: o, shown: map[string]*Update{}} }

// Note records that the watch has shown an update.
func (h *Held) Note(u *Update) { h.shown[u.Name] = u }

// NoteAll records what the initial events show.
func (h *Held) NoteAll(s Status) { maps.Copy(h.shown, s) }

// NoteRecent records what the client may have read of a view, up to the version at, before it opened the
// watch.
func (h *Held) NoteRecent(v *view.View, at string) {
	for _, u := range h.objects.recent(v, at) {
		if _, known := h.shown[u.Name]; !known {
			h.Note(u)
		}
	}
}

// Forget is called when the client gets an event of the cloud for an object.
func (h *Held) Forget(name string) { delete(h.shown, name) }

// IsEmpty reports whether nothing is shown otherwise than it is cached.
func (h *Held) IsEmpty() bool { return len(h.shown) == 0 }

// Changes returns the events for what the client, which has read a view up to the version at, does not have
// while the watch's user can reach no apiserver: none if of is nil. Events that are not taken are returned again. The
// error is damage of the view.
func (h *Held) Changes(of *Of, at string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		o, revision := h.objects, h.objects.currentRevision()
		h.Seen = revision
		if of == nil || revision == h.revision {
			return
		}
		current := map[string]bool{}
		for _, u := range o.updates(of.View) {
			current[u.Name] = true
			if e, ok := h.change(of, at, u); ok && !yield(e, nil) {
				return
			}
		}
		if !ShowsSlices(of.View) || o.isAway() { // otherwise it is about to be
			ended := func(u *Update) bool { return !current[u.Name] } // reports were dropped; pods are as they were
			if !h.revert(of, at, ended, yield) {
				return
			}
		}
		h.revision = revision
	}
}

// change returns the event for an update, and false if there is none.
func (h *Held) change(of *Of, at string, u *Update) (Event, bool) {
	if before := h.shown[u.Name]; before != nil && before.Revision == u.Revision {
		return Event{}, false
	}
	e, ok := of.Member(u.Name)
	if !ok || versions.Compare(e.Version, at) > 0 || !u.lies(of.View, e.Version) {
		return Event{}, false // the client does not have this object yet, or has another version
	}
	cached, err := of.View.Read(u.Name, e)
	if err != nil {
		h.objects.Log.Error("cached object cannot be read", "err", err)
		return Event{}, false
	}
	h.Note(u)
	return Event{u, cached}, true
}

// Ended returns the events that show as it is cached what is void when the cloud can be reached: of a view that is held,
// only what does not last.
func (h *Held) Ended(of *Of, at string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		holds := h.objects.Holds(of.View)
		h.revert(of, at, func(u *Update) bool { return !holds || !u.lasts() }, yield)
	}
}

// revert returns false if yield does.
func (h *Held) revert(of *Of, at string, ended func(*Update) bool, yield func(Event, error) bool) bool {
	for name, last := range h.shown {
		if !ended(last) {
			continue
		}
		delete(h.shown, name)
		e, ok := of.Member(name)
		if !ok || versions.Compare(e.Version, at) > 0 { // upstream will send it
			continue
		}
		if cached, err := of.View.Read(name, e); !yield(Event{nil, cached}, err) {
			return false
		}
	}
	return true
}
