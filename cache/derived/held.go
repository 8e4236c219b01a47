package derived

import (
	"iter"
	"maps"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
)

// Held is what a watch has shown of derived objects. It is level-triggered: one small record for each
// object, however often it changes. Like the watch it is for one goroutine.
type Held struct {
	Seen uint64 // the revision at the last call of Changes; see Objects.UntilChange

	objects  *Objects
	revision uint64 // the revision that has been shown completely
	shown    map[string]shown
	settled  bool // what was shown was reverted, and the cloud was not lost since
}

// shown is the last update of an object that a watch has shown.
type shown struct {
	update  *Update
	present bool // false after DELETED
}

// Event is one that a watch has to send.
type Event struct {
	Type   watch.EventType
	Update *Update // nil: the object is shown as it is cached
	Bare   []byte  // the cached object; nil if there is none
}

// Hold returns the state of a watch that has shown nothing.
func (o *Objects) Hold() *Held { return &Held{objects: o, shown: map[string]shown{}} }

// Note records that the watch has shown an object.
func (h *Held) Note(u *Update, present bool) { h.shown[u.Name] = shown{u, present} }

// NoteAll records what the initial events show.
func (h *Held) NoteAll(s Status) { maps.Copy(h.shown, s) }

// NoteRecent records what the client may have read of a view, up to the version at, before it opened the
// watch.
func (h *Held) NoteRecent(v *view.View, at string) {
	for _, u := range h.objects.recent(v, at) {
		if _, known := h.shown[u.Name]; !known {
			h.Note(u, true)
		}
	}
}

// Forget is called when the client gets an event of the cloud for an object.
func (h *Held) Forget(name string) { delete(h.shown, name) }

// IsEmpty reports whether nothing is shown otherwise than it is cached.
func (h *Held) IsEmpty() bool { return len(h.shown) == 0 }

// Changes returns the events for what the client, which has read a view up to the version at, does not have:
// none if of is nil.
// away means that the watch's user can reach no apiserver. Events that are not taken are returned again. The
// error is damage of the view.
func (h *Held) Changes(of *Of, at string, away bool) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		o, revision := h.objects, h.objects.currentRevision()
		h.Seen = revision
		if of == nil || revision == h.revision || h.settled && o.IsUp() || ShowsSlices(of.View) && !away {
			return
		}
		h.settled = false
		updates := o.updates(of.View)
		current := map[string]bool{}
		for _, u := range updates {
			current[u.Name] = true
			if e, ok := h.change(of, at, u); ok && !yield(e, nil) {
				return
			}
		}
		if ShowsSlices(of.View) && o.isAway() { // otherwise it is about to be
			ended := func(u *Update) bool { return !current[u.Name] } // the pods are as they were
			if !h.revert(of, at, ended, yield) {
				return
			}
		}
		h.revision = revision
	}
}

// change returns the event for an update, and false if there is none.
func (h *Held) change(of *Of, at string, u *Update) (Event, bool) {
	before, known := h.shown[u.Name]
	if known && before.update.Revision == u.Revision {
		return Event{}, false
	}
	p, ok := h.objects.place(of, nil, u)
	if !ok || p.member && versions.Compare(p.version, at) > 0 {
		return Event{}, false // the client does not have this object yet
	}
	there := p.member
	if known {
		there = before.present
	}
	h.Note(u, p.fits)
	return Event{eventFor(there, p.fits), u, p.bare}, there || p.fits
}

// eventFor returns the type of the event for an object that the client had before, or has after.
func eventFor(before, after bool) watch.EventType {
	switch {
	case !after:
		return watch.Deleted
	case before:
		return watch.Modified
	}
	return watch.Added
}

// Returned returns the events for what is void as soon as the cloud can be reached.
func (h *Held) Returned(of *Of, at string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) { h.revert(of, at, (*Update).endsAtReturn, yield) }
}

// Settled returns the events that show everything as it is cached.
func (h *Held) Settled(of *Of, at string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if h.revert(of, at, func(*Update) bool { return true }, yield) {
			h.settled, h.revision = true, 0 // derived objects are shown again after a loss
		}
	}
}

// revert returns false if yield does.
func (h *Held) revert(of *Of, at string, ended func(*Update) bool, yield func(Event, error) bool) bool {
	for name, last := range h.shown {
		if !ended(last.update) {
			continue
		}
		delete(h.shown, name)
		e, ok := of.Member(name)
		more := true
		switch {
		case !ok && last.present:
			more = yield(Event{watch.Deleted, last.update, nil}, nil)
		case ok && versions.Compare(e.Version, at) <= 0: // otherwise upstream will send it
			bare, err := of.View.Read(name, e)
			more = yield(Event{eventFor(last.present, true), nil, bare}, err)
		}
		if !more {
			return false
		}
	}
	return true
}
