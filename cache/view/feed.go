package view

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Feed is a watch that updates a view. It has a position: the version up to which its upstream has shown everything.
// An event is applied to the view only if the position is not above the view's version; else the view would lack what
// was between them.
//
// It is safe for concurrent use. The view's lock guards it.
type Feed struct {
	view     *View
	position string // empty before Open
	unread   bool   // something was shown that could not be read: until the next event the position is not known
	ended    bool   // the store was restored: its versions mean other objects now
	cut      func() // see Open
}

// NewFeed returns a feed without a position. began is View.Began when its request was sent. The caller must call Close.
func (v *View) NewFeed(began Began) *Feed {
	v.of.lock()
	defer v.of.unlock()
	f := &Feed{view: v, ended: began.isBefore(v)}
	v.feeds[f] = true
	return f
}

// Open sets the position to the version at which upstream was opened. cut is called, under no lock, if upstream has to
// be opened anew: at the view's version, because a list was committed that is below the position; or because the
// client has to list: then HasEnded is true, or the view is lost. It may be called late, and more than once.
func (f *Feed) Open(position string, cut func()) {
	f.view.of.lock()
	defer f.view.of.unlock()
	f.position, f.unread, f.cut = position, false, cut
}

// Close ends the feed.
func (f *Feed) Close() {
	f.view.of.lock()
	defer f.view.of.unlock()
	delete(f.view.feeds, f)
}

// HasEnded reports whether the store was restored since the watch was opened.
func (f *Feed) HasEnded() bool {
	f.view.of.lock()
	defer f.view.of.unlock()
	return f.ended
}

// Position returns the version up to which upstream has shown everything.
func (f *Feed) Position() string {
	f.view.of.lock()
	defer f.view.of.unlock()
	return f.position
}

// Unread is called after an event that could not be read. The view is dropped.
func (f *Feed) Unread() {
	f.view.of.lock()
	defer f.view.of.unlock()
	f.unread = true
	f.view.dropLocked()
}

// Event is an event of a watch.
type Event struct {
	Namespace, Name string // of the object; empty for a bookmark
	Version         string
	UID             types.UID
	Type            wire.TypeMeta
	Encoding        wire.Encoding
	Object          []byte // bare; nil for a deletion
}

func (ev *Event) member() string { return query.MemberName(ev.Namespace, ev.Name) }

// Applied is the result of Apply.
type Applied uint8

// Results of Apply.
const (
	Changed   Applied = iota // the view has changed
	Unchanged                // the view has the event already
	Gap                      // the view lacks events before this one
	Ended                    // the feed has ended: the event is of a store that was restored since
)

// Apply applies an event to the view, and to what is known of its object. shown means that the client gets it; else it has got it
// before. The view keeps ev.Object: the caller must not change it.
func (f *Feed) Apply(ev *Event, shown bool) Applied {
	v := f.view
	v.of.lock()
	defer v.of.unlock()
	if f.ended {
		return Ended
	}
	v.of.highest.Raise(ev.Version)
	a := f.follows(ev.Version)
	f.position, f.unread = versions.Higher(f.position, ev.Version), false
	switch {
	case a == Changed:
		f.changeLocked(ev)
	case a == Gap && shown:
		v.seenLocked(ev.Version)
		if ev.Name != "" {
			v.of.raiseLocked(ev.Version)
		}
	}
	switch {
	case ev.Name == "":
	case ev.Object == nil:
		f.leftLocked(ev)
	case a == Gap && shown:
		f.passedLocked(ev)
	}
	return a
}

// leftLocked is called for a DELETED event: the object no longer matches the view's query. It proves a
// deletion only if objects cannot leave the view in another way: else older copies are in doubt.
func (f *Feed) leftLocked(ev *Event) {
	v, name := f.view, ev.member()
	if !v.Key.Lasting() {
		v.of.learnLocked(name, func(one *state) bool {
			one.seen(ev.Version, ev.UID)
			one.Doubt = versions.Higher(one.Doubt, versions.Preceding(ev.Version))
			return true
		})
		return
	}
	// The version says which copies are gone. The UID that a DELETE answered may be of a successor, whose events are still to come.
	v.of.goneLocked(name, ev.Version, "", true)
}

// passedLocked is called for an object that a client is shown, and that the view cannot take after a gap: a GET must not
// return an older one if the cloud goes away before the view has caught up. If the
// view is lost, the object is not kept, and older copies are in doubt.
func (f *Feed) passedLocked(ev *Event) {
	v, name := f.view, ev.member()
	lost := !v.hasStateLocked()
	if lost || v.of.holdsLocked(name) {
		v.of.doubtLocked(name, versions.Preceding(ev.Version))
	}
	if !lost {
		f.keepLocked(ev)
	}
}

// keepLocked keeps an object that no view keeps.
func (f *Feed) keepLocked(ev *Event) {
	f.view.of.keepLocked(&Read{
		Namespace: ev.Namespace, Name: ev.Name, Version: ev.Version, UID: ev.UID, Type: ev.Type, Repr: f.view.Repr(ev.Encoding), Bare: ev.Object,
	})
}

// Deleted records a DELETED event among initial events.
func (f *Feed) Deleted(ev *Event) {
	v := f.view
	v.of.lock()
	defer v.of.unlock()
	v.of.highest.Raise(ev.Version)
	f.leftLocked(ev)
}

// Shown keeps an object that initial events have shown whose end cannot be committed.
func (f *Feed) Shown(ev *Event) {
	r := f.view.of
	r.lock()
	f.keepLocked(ev)
	r.unlock()
	r.all.EnforceLimit(r)
}

// follows compares an event with the view's version.
func (f *Feed) follows(version string) Applied {
	v := f.view
	switch {
	case !v.hasStateLocked():
		return Gap
	case versions.Compare(version, v.version) <= 0:
		return Unchanged
	case f.isAheadLocked():
		return Gap
	}
	return Changed
}

// isAheadLocked reports whether the view lacks what was before the next event.
func (f *Feed) isAheadLocked() bool {
	return f.unread || versions.Compare(f.position, f.view.version) > 0
}

// changeLocked applies an event that follows the view's version.
func (f *Feed) changeLocked(ev *Event) {
	v, update := f.view, wal.Change{}
	v.version, v.header.Updated = ev.Version, headerTime()
	if ev.Name == "" {
		v.saveLocked(update, true)
		return
	}
	name := ev.member()
	had := v.has(name)
	if ev.Object == nil {
		v.remove(name)
		update.Delete = []string{name}
	} else {
		rev := revisionOf(ev.Version, ev.UID, ev.Encoding, ev.Object)
		v.set(name, rev)
		update.Put = []wal.Row{rev.row(name, ev.Object)}
	}
	v.header.Changed, v.header.Unfollowed = ev.Version, span{}
	v.saveLocked(update, v.of.mayWait() && had && ev.Object != nil)
}

// mayWait reports whether changes of objects may wait for a later commit: the renewal of a lease.
func (r *resource) mayWait() bool {
	return r.GroupResource == schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
}

// Cut has the upstreams of all feeds opened anew.
func (v *View) Cut() {
	v.of.lock()
	cuts := v.feeds.cuts(false)
	v.of.unlock()
	callAll(cuts)
}

// feeds are the watches that update a view, whose lock guards them.
type feeds map[*Feed]bool

// cuts returns the cuts of all feeds, or of those that are ahead of the view.
func (fs feeds) cuts(onlyAhead bool) (cuts []func()) {
	for f := range fs {
		if f.cut != nil && (!onlyAhead || f.isAheadLocked()) {
			cuts = append(cuts, f.cut)
		}
	}
	return cuts
}

// end ends all feeds, because the store was restored, and returns their cuts.
func (fs feeds) end() []func() {
	for f := range fs {
		f.ended = true
	}
	return fs.cuts(false)
}

func callAll(cuts []func()) {
	for _, cut := range cuts {
		cut()
	}
}
