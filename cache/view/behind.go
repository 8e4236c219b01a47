package view

import (
	"errors"

	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/versions"
)

// A view can fall behind its clients. A watch that begins above the view's version, after
// the hub was killed with the last second of changes not yet on disk, passes events that
// cannot be applied before the view has been listed again; and some lists pass whole
// without being kept, because they are too large, or because their first pages had to
// make room for others. Where the cloud goes away before the view has caught up, its
// state is older than what clients have seen, and must not be served: what they saw deleted
// would be back. Such a view answers nothing until it has caught up.
//
// It catches up by a list. A watch from the view's version would bring less, but not to
// those who wait for the list to learn what it has changed, nor after a version that the
// apiservers have forgotten.
//
// A hub that restarts remembers it, as far as it was on disk. What a client knew from a hub
// that was killed before does not count, nor do initial events that broke off, nor anything
// from before a reboot: then there are no clients that have seen more, and a node that
// reboots offline reads what is on its disk.

// ErrBehind is why there is no answer from a view that is older than what was seen of it.
var ErrBehind = errors.New("what is cached of this is older than what was read last, and the cloud went away before it was read again")

// seenLocked notes that a client has been given the state of the view at a version.
func (v *View) seenLocked(version string) {
	if versions.Compare(version, v.seen) > 0 {
		v.seen = version
		v.saveSeenLocked()
	}
}

// saveSeenLocked has the disk know how far behind its clients the view is.
func (v *View) saveSeenLocked() {
	if v.behindLocked() && v.complete && v.onDisk && !v.stale.Load() {
		v.disk.Change(&store.Change{ID: v.DiskID(), Op: store.Update, From: v.version, Header: v.headerLocked()})
	}
}

// SawState is seenLocked, and reports whether the view could answer and is behind now.
func (v *View) SawState(version string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	could := v.usableLocked()
	v.seenLocked(version)
	return could && !v.usableLocked()
}

func (v *View) behindLocked() bool { return versions.Compare(v.version, v.seen) < 0 }

// Behind reports whether the view is older than what a client was given of it.
func (v *View) Behind() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.behindLocked()
}

// Latest is the latest version of which the view has the state, or a client was given it;
// of a view that is stale, too. An apiserver whose newest state is older has a store that was
// restored from a backup.
func (v *View) Latest() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.complete {
		return versions.Higher(v.version, v.seen)
	}
	return v.seen
}

// StartOver drops a view whose versions mean nothing any more.
func (v *View) StartOver() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.dropLocked()
	v.seen = ""
}
