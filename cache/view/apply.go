package view

import (
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/versions"
)

// Change is one event about one member.
type Change struct {
	Name    string
	Version string
	Object  []byte // bare; nil for one that is gone
}

// Applied says what Apply made of an event.
type Applied uint8

// What Apply makes of an event.
const (
	Changed   Applied = iota // the view has changed
	Unchanged                // the view had it already
	Gap                      // the view is not at the version that the event follows
	Buffered                 // so it is, and the event waits for the list that is under way
)

// buffered is an event that has to wait for a list, because the view is not at the
// version that it follows. A bookmark has no name.
type buffered struct {
	from string
	Change
}

// maxBacklog bounds the bytes of events that wait for a list.
const maxBacklog = 8 << 20

// Apply takes over an event of a stream that has passed everything up to
// version from. c.object is the view's afterwards.
func (v *View) Apply(from string, c *Change) Applied {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.applyLocked(from, c)
}

// Advance takes over a bookmark of a stream that has passed everything up to from.
func (v *View) Advance(from, to string) Applied {
	return v.Apply(from, &Change{Version: to})
}

func (v *View) applyLocked(from string, c *Change) Applied {
	v.Highest.Raise(c.Version)
	a := v.followsLocked(from, c.Version)
	if a == Gap { // the client gets it all the same
		v.seenLocked(c.Version)
		if c.Name != "" {
			v.records.Forgot(v.Key.UserResource(), c.Version)
		}
	}
	if a == Gap && v.waitLocked(from, c) {
		return Buffered
	}
	if a != Changed {
		return a
	}
	if v.loadLocked() != nil {
		return Gap
	}
	update := store.Change{ID: v.DiskID(), Op: store.Update, From: v.version}
	v.version, v.header.Updated, v.given = c.Version, v.disk.Clock(), true
	switch {
	case c.Name == "":
	case c.Object == nil:
		v.header.Changed = c.Version
		v.removeLocked(c.Name)
		update.Delete = []string{c.Name}
	default:
		v.header.Changed = c.Version
		o := store.NewObject(c.Name, c.Version, c.Object)
		v.setLocked(c.Name, entryOf(&o))
		update.Put = []store.Object{o}
	}
	update.Header = v.headerLocked()
	v.disk.Change(&update)
	return Changed
}

// waitLocked has an event wait for the list that is under way. It says no if there
// is none, or too much waits.
func (v *View) waitLocked(from string, c *Change) bool {
	if v.listing == 0 || v.backlogSize > maxBacklog {
		return false
	}
	v.backlog = append(v.backlog, buffered{from, *c})
	v.backlogSize += len(c.Object) + len(c.Name) + memberCost
	return true
}

// CountLists is called before a list of the hub's own, with 1, and after it, with -1.
func (v *View) CountLists(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.listing += n; v.listing == 0 {
		v.backlog, v.backlogSize = nil, 0
	}
}

// catchUpLocked applies what has waited for a list. What the list has already is
// known by its version.
func (v *View) catchUpLocked() {
	tail := v.backlog
	v.backlog, v.backlogSize = nil, 0
	for i := range tail {
		v.applyLocked(tail[i].from, &tail[i].Change)
	}
}

// followsLocked holds an event against the view's version. A stream that begins
// above the view would leave a gap.
func (v *View) followsLocked(from, version string) Applied {
	switch {
	case !v.complete || v.stale.Load() || versions.Compare(from, v.version) > 0:
		return Gap
	case versions.Compare(version, v.version) <= 0:
		return Unchanged
	}
	return Changed
}
