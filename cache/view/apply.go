package view

import (
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/versions"
)

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
	Buffered                 // the same, and the event waits for the relist that is running
)

// buffered is an event after a gap, which waits for a relist.
type buffered struct {
	from string
	Change
}

// backlog are the events after a gap, which wait for the end of a relist.
type backlog struct {
	listing     int // relists that are running
	waiting     []buffered
	backlogSize int // in bytes
}

// maxBacklog bounds the bytes of events that wait for a relist.
const maxBacklog = 8 << 20

// Apply applies an event of a stream that has relayed everything up to version from. The
// view keeps c.Object: the caller must not change it.
func (v *View) Apply(from string, c *Change) Applied {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.applyLocked(from, c)
}

func (v *View) applyLocked(from string, c *Change) Applied {
	v.Highest.Raise(c.Version)
	a := v.followsLocked(from, c.Version)
	if a != Gap && v.loadLocked() != nil {
		v.records.Damaged(v.Key.UserResource(), c.Version)
		a = Gap
	}
	if a == Gap { // the client gets the event nevertheless
		v.seenLocked(c.Version)
		if c.Name != "" {
			v.records.SeenUncached(v.Key.UserResource(), c.Version)
		}
	}
	if a == Gap && v.bufferLocked(from, c) {
		return Buffered
	}
	if a != Changed {
		return a
	}
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
	return Changed
}

// bufferLocked adds an event to the backlog of the running relist. It returns false if none
// is running, or the backlog is full.
func (v *View) bufferLocked(from string, c *Change) bool {
	if v.listing == 0 || v.backlogSize > maxBacklog {
		return false
	}
	v.waiting = append(v.waiting, buffered{from, *c})
	v.backlogSize += len(c.Object) + len(c.Name) + memberCost
	return true
}

// CountLists is called with 1 before a relist, and with -1 after it.
func (v *View) CountLists(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.listing += n; v.listing == 0 {
		v.waiting, v.backlogSize = nil, 0
	}
}

// catchUpLocked applies the backlog after a relist. Events that the list contains already are
// recognized by their versions.
func (v *View) catchUpLocked() {
	waiting := v.waiting
	v.waiting, v.backlogSize = nil, 0
	for i := range waiting {
		v.applyLocked(waiting[i].from, &waiting[i].Change)
	}
}

// followsLocked compares an event with the view's version. A stream that begins above it
// leaves a gap.
func (v *View) followsLocked(from, version string) Applied {
	switch {
	case !v.complete || v.stale.Load() || versions.Compare(from, v.version) > 0:
		return Gap
	case versions.Compare(version, v.version) <= 0:
		return Unchanged
	}
	return Changed
}
