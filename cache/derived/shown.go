package derived

import (
	"iter"
	"maps"

	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
)

// Shown is what a watch has shown of derived objects. It is level-triggered: one small record for each
// object, however often it changes. Like the watch it is for one goroutine.
type Shown struct {
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

// NewShown returns the state of a watch that has shown nothing.
func (o *Objects) NewShown() *Shown { return &Shown{objects: o, shown: map[string]*Update{}} }

// Note records that the watch has shown an update.
func (w *Shown) Note(u *Update) { w.shown[u.Name] = u }

// NoteAll records what the initial events show.
func (w *Shown) NoteAll(s Status) { maps.Copy(w.shown, s) }

// NoteRecent records what the client may have read of a view, up to the version at, before it opened the
// watch.
func (w *Shown) NoteRecent(v *view.View, at string) {
	for _, u := range w.objects.recent(v, at) {
		if _, known := w.shown[u.Name]; !known {
			w.Note(u)
		}
	}
}

// Forget is called when the client gets an event of the cloud for an object.
func (w *Shown) Forget(name string) { delete(w.shown, name) }

// IsEmpty reports whether nothing is shown otherwise than it is cached.
func (w *Shown) IsEmpty() bool { return len(w.shown) == 0 }

// Changes returns the events for what the client, which has read a view up to the version at, does not have
// while the watch's user can reach no apiserver: none if of is nil. Events that are not taken are returned again. The
// error is damage of the view.
func (w *Shown) Changes(of *Selected, at string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		o, revision := w.objects, w.objects.currentRevision()
		w.Seen = revision
		if of == nil || revision == w.revision {
			return
		}
		current := map[string]bool{}
		for _, u := range o.updates(of.View) {
			current[u.Name] = true
			if e, ok := w.change(of, at, u); ok && !yield(e, nil) {
				return
			}
		}
		if !ShowsSlices(of.View) || o.isAway() { // otherwise it is about to be
			ended := func(u *Update) bool { return !current[u.Name] } // reports were dropped; pods are as they were
			if !w.revert(of, at, ended, yield) {
				return
			}
		}
		w.revision = revision
	}
}

// change returns the event for an update, and false if there is none.
func (w *Shown) change(of *Selected, at string, u *Update) (Event, bool) {
	if before := w.shown[u.Name]; before != nil && before.Revision == u.Revision {
		return Event{}, false
	}
	rev, ok := of.Member(u.Name)
	if !ok || versions.Compare(rev.Version, at) > 0 || !u.lies(of.View, rev.Version) {
		return Event{}, false // the client does not have this object yet, or has another version
	}
	cached, err := of.View.Read(u.Name, rev)
	if err != nil {
		w.objects.Log.Error("cached object cannot be read", "err", err)
		return Event{}, false
	}
	w.Note(u)
	return Event{u, cached}, true
}

// Ended returns the events that show as it is cached what is void when the cloud can be reached: all, or only what does not
// last, as long as watches keep what they have shown of the view.
func (w *Shown) Ended(of *Selected, at string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		keeps := w.objects.KeepsShown(of.View)
		w.revert(of, at, func(u *Update) bool { return !keeps || !u.lasts() }, yield)
	}
}

// revert returns false if yield does.
func (w *Shown) revert(of *Selected, at string, ended func(*Update) bool, yield func(Event, error) bool) bool {
	for name, last := range w.shown {
		if !ended(last) {
			continue
		}
		delete(w.shown, name)
		rev, ok := of.Member(name)
		if !ok || versions.Compare(rev.Version, at) > 0 { // upstream will send it
			continue
		}
		if cached, err := of.View.Read(name, rev); !yield(Event{nil, cached}, err) {
			return false
		}
	}
	return true
}
