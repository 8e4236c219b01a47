package view

import (
	"errors"

	"github.com/edgehub-io/edgehub/cache/versions"
)

// A view can fall behind its clients: a watch goes on while the view is lost, and then a list is committed that is below
// what the watch has shown; or a list is relayed and not cached, because its first pages were dropped for others. If the
// cloud goes away before the view has caught up, its state is older than what clients have seen. It must not be served:
// objects that clients saw deleted would reappear. Such a view answers nothing until it has caught up.
//
// It catches up by its watches, which are opened anew at its version if they are ahead of it (see Feed), or by a list.
//
// A restarted hub knows that a view is behind as far as that was on disk. Versions that a
// client got from a hub that was killed before do not count, nor do interrupted initial
// events, nor anything from before a reboot: no client from then is still running, and a
// node that boots offline has to use what is on its disk.

// ErrBehind is returned for a view that is older than a state that its clients have seen.
var ErrBehind = errors.New("what is cached of this is older than what was read last, and the cloud went away before it was read again")

// received is what clients have received of a view although the view does not have it. It survives dropping the view.
type received struct {
	// seen is the latest version; see behindLocked.
	seen string
	// shown is the same without events that could not be read, whose version is a guess.
	shown string
}

// seenLocked records that a client has received the state of the view at a version.
func (v *View) seenLocked(version string) {
	if versions.Compare(version, v.shown) > 0 {
		v.shown = version
	}
	v.guessLocked(version)
}

// guessLocked is seenLocked for a version that may be another.
func (v *View) guessLocked(version string) {
	if versions.Compare(version, v.seen) > 0 {
		v.seen = version
		v.saveSeenLocked()
	}
}

// saveSeenLocked writes how far the view is behind its clients.
func (v *View) saveSeenLocked() {
	if v.behindLocked() && v.complete {
		v.saveHeaderLocked()
	}
}

// MarkSeen is seenLocked.
func (v *View) MarkSeen(version string) {
	v.of.lock()
	defer v.of.unlock()
	v.seenLocked(version)
}

// MarkUnread records that a client has received an event that could not be read, of about this version.
func (v *View) MarkUnread(version string) {
	v.of.lock()
	defer v.of.unlock()
	v.guessLocked(version)
}

func (v *View) behindLocked() bool { return versions.Compare(v.version, v.seen) < 0 }

// Behind reports whether the view is older than a state that a client has received.
func (v *View) Behind() bool {
	v.of.lock()
	defer v.of.unlock()
	return v.behindLocked()
}

// Latest returns the latest version whose state the view has, or a client has received, even
// if the view is stale.
func (v *View) Latest() string {
	v.of.lock()
	defer v.of.unlock()
	if v.complete {
		return versions.Higher(v.version, v.seen)
	}
	return v.seen
}
