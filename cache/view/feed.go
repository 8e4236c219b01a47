package view

import (
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/versions"
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
	v.mu.Lock()
	defer v.mu.Unlock()
	f := &Feed{view: v, ended: began.isBefore(v)}
	if v.feeds == nil {
		v.feeds = map[*Feed]bool{}
	}
	v.feeds[f] = true
	return f
}

// Open sets the position to the version at which upstream was opened. cut is called, under no lock, if upstream has to
// be opened anew: at the view's version, because a list was committed that is below the position; or because the
// client has to list: then HasEnded is true, or the view is lost. It may be called late, and more than once.
func (f *Feed) Open(position string, cut func()) {
	f.view.mu.Lock()
	defer f.view.mu.Unlock()
	f.position, f.unread, f.cut = position, false, cut
}

// Close ends the feed.
func (f *Feed) Close() {
	f.view.mu.Lock()
	defer f.view.mu.Unlock()
	delete(f.view.feeds, f)
}

// HasEnded reports whether the store was restored since the watch was opened.
func (f *Feed) HasEnded() bool {
	f.view.mu.Lock()
	defer f.view.mu.Unlock()
	return f.ended
}

// Position returns the version up to which upstream has shown everything.
func (f *Feed) Position() string {
	f.view.mu.Lock()
	defer f.view.mu.Unlock()
	return f.position
}

// Unread is called after an event that could not be read. The view is dropped.
func (f *Feed) Unread() {
	f.view.mu.Lock()
	defer f.view.mu.Unlock()
	f.unread = true
	f.view.dropLocked()
}

// Change is one event.
type Change struct {
	Name    string // of the member; empty for a bookmark
	Version string
	Object  []byte // bare; nil for a deletion
}

// Applied is the result of Apply.
type Applied uint8

// Results of Apply.
const (
	Changed   Applied = iota // the view has changed
	Unchanged                // the view has the event already
	Gap                      // the view lacks events before this one
	Ended                    // the feed has ended: the event is of a store that was restored since
)

// Apply applies an event to the view. shown means that the client gets it; else it has got it before. The view keeps
// c.Object: the caller must not change it.
func (f *Feed) Apply(c *Change, shown bool) Applied {
	v := f.view
	v.mu.Lock()
	defer v.mu.Unlock()
	if f.ended {
		return Ended
	}
	v.Highest.Raise(c.Version)
	a := f.follows(c.Version)
	if a == Changed && v.loadLocked() != nil {
		v.records.Damaged(v.Key.UserResource(), c.Version)
		a = Gap
	}
	f.position, f.unread = versions.Higher(f.position, c.Version), false
	switch {
	case a == Changed:
		v.changeLocked(c)
	case a == Gap && shown:
		v.seenLocked(c.Version)
		if c.Name != "" {
			v.records.SeenUncached(v.Key.UserResource(), c.Version)
		}
	}
	return a
}

// follows compares an event with the view's version.
func (f *Feed) follows(version string) Applied {
	v := f.view
	switch {
	case !v.complete || v.stale.Load():
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
func (v *View) changeLocked(c *Change) {
	update := store.Change{ID: v.DiskID(), Op: store.Update, From: v.version}
	v.version, v.header.Updated = c.Version, v.disk.Clock()
	switch {
	case c.Name == "":
	case c.Object == nil:
		v.header.Changed = c.Version
		v.remove(c.Name)
		update.Delete = []string{c.Name}
	default:
		v.header.Changed = c.Version
		o := store.NewObject(c.Name, c.Version, c.Object)
		v.set(c.Name, entryOf(&o))
		update.Put = []store.Object{o}
	}
	update.Header = v.headerLocked()
	v.disk.Change(&update)
}

// aheadLocked returns the cuts of the feeds that are ahead of the view.
func (v *View) aheadLocked() (cuts []func()) {
	for f := range v.feeds {
		if f.cut != nil && f.isAheadLocked() {
			cuts = append(cuts, f.cut)
		}
	}
	return cuts
}

// endFeedsLocked ends all feeds, because the store was restored, and returns their cuts.
func (v *View) endFeedsLocked() (cuts []func()) {
	for f := range v.feeds {
		if f.ended = true; f.cut != nil {
			cuts = append(cuts, f.cut)
		}
	}
	return cuts
}

// Cut has the upstreams of all feeds opened anew.
func (v *View) Cut() {
	v.mu.Lock()
	var cuts []func()
	for f := range v.feeds {
		if f.cut != nil {
			cuts = append(cuts, f.cut)
		}
	}
	v.mu.Unlock()
	callAll(cuts)
}

func callAll(cuts []func()) {
	for _, cut := range cuts {
		cut()
	}
}
