package cache

import (
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/versions"
)

// change is one event about one member.
type change struct {
	name    string
	version string
	object  []byte // bare; nil for one that is gone
}

// applied says what apply made of an event.
type applied uint8

const (
	isNews   applied = iota // the view has changed
	isKnown                 // the view had it already
	isBeyond                // the view is not at the version that the event follows
	isLate                  // so it is, and the event waits for the list that is under way
)

// late is an event that has to wait for a list, because the view is not at the
// version that it follows. A bookmark has no name.
type late struct {
	from string
	change
}

// maxTail bounds the bytes of events that wait for a list.
const maxTail = 8 << 20

// apply takes over an event of a stream that has passed everything up to
// version from. c.object is the view's afterwards.
func (v *view) apply(from string, c *change) applied {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.applyLocked(from, c)
}

// advance takes over a bookmark of a stream that has passed everything up to from.
func (v *view) advance(from, to string) applied {
	return v.apply(from, &change{version: to})
}

func (v *view) applyLocked(from string, c *change) applied {
	v.highest.Raise(c.version)
	a := v.followsLocked(from, c.version)
	if a == isBeyond { // the client gets it all the same
		v.seenLocked(c.version)
		if c.name != "" {
			v.records.Forgot(v.key.UserResource(), c.version)
		}
	}
	if a == isBeyond && v.waitLocked(from, c) {
		return isLate
	}
	if a != isNews {
		return a
	}
	if v.loadLocked() != nil {
		return isBeyond
	}
	update := store.Change{ID: v.diskID(), Op: store.Update, From: v.version}
	v.version, v.header.Updated, v.given = c.version, v.disk.Clock(), true
	switch {
	case c.name == "":
	case c.object == nil:
		v.header.Changed = c.version
		v.removeLocked(c.name)
		update.Delete = []string{c.name}
	default:
		v.header.Changed = c.version
		o := store.NewObject(c.name, c.version, c.object)
		v.setLocked(c.name, entryOf(&o))
		update.Put = []store.Object{o}
	}
	update.Header = v.headerLocked()
	v.disk.Change(&update)
	return isNews
}

// waitLocked has an event wait for the list that is under way. It says no if there
// is none, or too much waits.
func (v *view) waitLocked(from string, c *change) bool {
	if v.listing == 0 || v.tailSize > maxTail {
		return false
	}
	v.tail = append(v.tail, late{from, *c})
	v.tailSize += len(c.object) + len(c.name) + memberCost
	return true
}

// countLists is called before a list of the hub's own, with 1, and after it, with -1.
func (v *view) countLists(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.listing += n; v.listing == 0 {
		v.tail, v.tailSize = nil, 0
	}
}

// catchUpLocked applies what has waited for a list. What the list has already is
// known by its version.
func (v *view) catchUpLocked() {
	tail := v.tail
	v.tail, v.tailSize = nil, 0
	for i := range tail {
		v.applyLocked(tail[i].from, &tail[i].change)
	}
}

// followsLocked holds an event against the view's version. A stream that begins
// above the view would leave a gap.
func (v *view) followsLocked(from, version string) applied {
	switch {
	case !v.complete || v.lost.Load() || versions.Compare(from, v.version) > 0:
		return isBeyond
	case versions.Compare(version, v.version) <= 0:
		return isKnown
	}
	return isNews
}
