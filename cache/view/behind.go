package view

import (
	"errors"

	"github.com/edgehub-io/edgehub/cache/versions"
)

// A view can fall behind its clients. After the hub was killed before the last second of
// changes was on disk, a watch may begin above the view's version: its events reach the
// client, but cannot be applied until the view is listed again. And some lists are relayed
// but not cached, because they are too large, or because their first pages were dropped for
// others. If the cloud goes away before the view has caught up, its state is older than
// what clients have seen. It must not be served: objects that clients saw deleted would
// reappear. Such a view answers nothing until it has caught up.
//
// It catches up by a list. A watch from the view's version would transfer less, but it
// does not work once the apiservers have forgotten that version, and clients that wait for
// the changes of the list would not get them.
//
// A restarted hub knows that a view is behind as far as that was on disk. Versions that a
// client got from a hub that was killed before do not count, nor do interrupted initial
// events, nor anything from before a reboot: no client from then is still running, and a
// node that boots offline has to use what is on its disk.

// ErrBehind is returned for a view that is older than a state that its clients have seen.
var ErrBehind = errors.New("what is cached of this is older than what was read last, and the cloud went away before it was read again")

// received is what clients have received of a view.
type received struct {
	// seen is the latest version whose state a client has received although the view does not
	// have it; see behindLocked. It survives dropping the view.
	seen string
}

// seenLocked records that a client has received the state of the view at a version.
func (v *View) seenLocked(version string) {
	if versions.Compare(version, v.seen) > 0 {
		v.seen = version
		v.saveSeenLocked()
	}
}

// saveSeenLocked writes how far the view is behind its clients.
func (v *View) saveSeenLocked() {
	if v.behindLocked() && v.complete {
		v.saveHeaderLocked(v.version)
	}
}

// MarkSeen is seenLocked, and reports whether that made a usable view unusable.
func (v *View) MarkSeen(version string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	could := v.usableLocked()
	v.seenLocked(version)
	return could && !v.usableLocked()
}

func (v *View) behindLocked() bool { return versions.Compare(v.version, v.seen) < 0 }

// Behind reports whether the view is older than a state that a client has received.
func (v *View) Behind() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.behindLocked()
}

// Latest returns the latest version whose state the view has, or a client has received, even
// if the view is stale.
func (v *View) Latest() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.complete {
		return versions.Higher(v.version, v.seen)
	}
	return v.seen
}

// provesRestore reports whether a consistent answer at a version proves that etcd was restored
// from a backup: clients had received the state at version began before the request was sent.
// relist.Lister.restored documents what follows.
func provesRestore(began, version string) bool { return versions.Compare(version, began) < 0 }

// Reset drops a view whose versions are no longer valid.
func (v *View) Reset() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.dropLocked()
	v.seen = ""
}
