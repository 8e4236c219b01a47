package view

import (
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// View is the cached result of one query. Its index is authoritative; the disk follows.
//
// All changes are made under its resource's lock, and queued for the disk under it, in order.
type View struct {
	Key   query.Key
	table string    // its name in the log
	of    *resource // whose lock guards the rest, and orders changes on disk

	// stale is set when changes to the view did not fit into what waits for the disk: its index names objects
	// whose bytes are lost. Only a new list repairs that.
	stale atomic.Bool
	use

	contents
	received
	feeds  feeds
	header viewHeader
	// version is the latest at which the members are known.
	version  string
	complete bool
	onDisk   bool // the view was read from the disk, or queued for it
	// confirmed is when an apiserver last answered the query, since the hub started; see Views.Rights.
	confirmed time.Time
}

// Revision is one version of an object, in the encodings in which it was read.
type Revision struct {
	Version string
	UID     types.UID
	body
	other *body // in the other encoding; nil if it was not read in that
}

// body is an object in one encoding.
type body struct {
	encoding wire.Encoding
	size     int // in bytes
	sum      wal.Sum
	// quick is a hash of the bytes, valid within this process, at a tenth of the cost of
	// sum; 0 if unknown. It is not collision-resistant: compare it only between objects that
	// the same user has read.
	quick uint64
}

// memberCost is roughly what a member takes on disk besides its object, in bytes.
const memberCost = 130

// revisionOf returns the revision of an object.
func revisionOf(version string, uid types.UID, e wire.Encoding, bare []byte) Revision {
	return Revision{Version: version, UID: uid, body: body{encoding: e, size: len(bare), sum: wal.SumOf(bare)}}
}

// in returns the object in an encoding, or nil.
func (rev *Revision) in(encoding wire.Encoding) *body {
	switch {
	case rev.encoding == encoding:
		return &rev.body
	case rev.other != nil && rev.other.encoding == encoding:
		return rev.other
	}
	return nil
}

// has reports whether the object is the same version, and one in this encoding the same bytes.
func (rev *Revision) has(one *Revision) bool {
	b := rev.in(one.encoding)
	return rev.Version == one.Version && b != nil && b.sum == one.sum
}

// best returns the object in an encoding, or else in the other one.
func (rev *Revision) best(encoding wire.Encoding) *body {
	if b := rev.in(encoding); b != nil {
		return b
	}
	return &rev.body
}

// Size returns how many bytes the object takes, in all encodings.
func (rev *Revision) Size() int {
	if rev.other != nil {
		return rev.size + rev.other.size
	}
	return rev.size
}

// SizeIn returns how many bytes the object has in an encoding, or false if it has to be converted.
func (rev *Revision) SizeIn(encoding wire.Encoding) (int, bool) {
	b := rev.in(encoding)
	if b == nil {
		return rev.size, false
	}
	return b.size, true
}

// dropLocked empties the view, in memory and on disk. What it has shown stays known: nothing older is served of its objects.
func (v *View) dropLocked() {
	if v.complete {
		v.seenLocked(v.version)
	}
	if v.onDisk {
		v.of.put(wal.Change{Table: v.table, Clear: true}, false)
	}
	before := v.members
	v.of.raiseLocked(v.version)
	v.contents, v.header = contents{}, viewHeader{}
	v.version, v.complete, v.onDisk = "", false, false
	v.stale.Store(false)
	for i := range before {
		if m := &before[i]; v.of.holdsLocked(m.Name) {
			v.of.doubtOlderLocked(m.Name, m.Version)
		}
	}
}

// DropAt drops the view if it is still at a version, from which no watch can go on.
func (v *View) DropAt(version string) {
	v.of.lock()
	defer v.of.unlock()
	if v.complete && v.version == version {
		v.dropLocked()
	}
}

// String returns the query, without the user, for logs.
func (v *View) String() string {
	q := query.Query{Verb: "list", Resource: v.Key.GVR(), Namespace: v.Key.Namespace, Labels: v.Key.Labels, Fields: v.Key.Fields}
	return q.String()
}

// isShowing reports whether the view shows its members.
func (v *View) isShowing() bool { return !v.stale.Load() && !v.header.Denied }

// usableLocked reports whether the view can answer its query.
func (v *View) usableLocked() bool {
	return v.complete && v.isShowing() && !v.behindLocked()
}

// Position returns the version of the view's state, or "" while there is none.
func (v *View) Position() string {
	v.of.lock()
	defer v.of.unlock()
	if !v.hasStateLocked() {
		return ""
	}
	return v.version
}

// hasStateLocked reports whether the view has a state that events can update.
func (v *View) hasStateLocked() bool { return v.complete && !v.stale.Load() }

// Deny records that the user may not read the view, or may again. It does not change the
// members.
func (v *View) Deny(denied bool) {
	v.of.lock()
	defer v.of.unlock()
	v.denyLocked(denied)
}

func (v *View) denyLocked(denied bool) {
	if !denied {
		v.confirmed = time.Now()
	}
	if v.header.Denied != denied {
		v.header.Denied = denied
		v.saveHeaderLocked()
	}
}

// isDamagedLocked reports whether the bytes of a member could not be read. The others can be. A new list
// repairs that.
func (v *View) isDamagedLocked() bool { return v.of.all.damaged.anyOf(v.members) }

// Repr returns the form of the view's objects in an encoding.
func (v *View) Repr(e wire.Encoding) wire.Representation {
	return wire.Representation{Encoding: e, Metadata: v.Key.Metadata}
}

// Member returns the revision of one member.
func (v *View) Member(name string) (Revision, bool) {
	v.of.lock()
	defer v.of.unlock()
	if v.stale.Load() || v.header.Denied {
		return Revision{}, false
	}
	return v.get(name)
}

// absentAt returns the version at which the view shows that there is no such object, or "".
// That is a proof only if the view is usable: its user may have lost access, or clients may
// have seen a later state.
func (v *View) absentAt(namespace, member string) (version string, usable bool) {
	k := &v.Key
	_, name := query.SplitMember(member)
	if !k.Proves() || k.Namespace != "" && k.Namespace != namespace || k.Fields != "" && k.Fields != query.OnlyName+name || !v.hasStateLocked() {
		return "", false
	}
	if v.has(member) {
		return "", false
	}
	return v.version, v.usableLocked()
}

// Raise records that a version of the view's resource was seen.
func (v *View) Raise(version string) { v.of.highest.Raise(version) }
