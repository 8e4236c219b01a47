package view

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgehub-io/edgehub/cache/disk"
	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// View is the cached result of one query. Its index is authoritative; the disk follows.
//
// All changes are made under mu, and queued for the disk under it, in order.
type View struct {
	id      atomic.Pointer[store.ID] // changes only with the store file; see Views.rename
	Key     query.Key
	raw     []byte // of the key
	Scope   string
	Repr    negotiation.Representation
	disk    *disk.Disk
	records *records.Records // of single objects
	Highest *records.Highest // version of its resource; may be nil

	// stale is set when changes to the view could not be written: its index names objects
	// whose bytes are lost. Only a new list repairs that.
	stale atomic.Bool
	use
	counted usage // the view's part of Views.totals, whose mutex guards it

	mu sync.Mutex
	contents
	received
	feeds   map[*Feed]bool
	history *history
	header  viewHeader
	// version is the latest at which the members are known; of a Single view, a count of changes.
	version  string
	complete bool
	onDisk   bool // the view was read from the disk, or queued for it
	// confirmed is when an apiserver last answered the query, since the hub started; see Views.Rights.
	confirmed time.Time
}

// Entry is a member in the index.
type Entry struct {
	Version string
	sum     store.Sum
	Size    int
	// quick is a hash of the bytes, valid within this process, at a tenth of the cost of
	// sum; 0 if unknown. It is not collision-resistant: compare it only between objects that
	// the same user has read.
	quick uint64
}

// is reports whether both are the same version and bytes.
func (e Entry) is(other Entry) bool { return e.Version == other.Version && e.sum == other.sum }

// Member returns the entry as a member in the store.
func (e Entry) Member(name string) store.Member {
	return store.Member{Name: name, ResourceVersion: e.Version, Sum: e.sum, Size: e.Size}
}

// entryOf returns the entry of an object.
func entryOf(o *store.Object) Entry {
	return Entry{Version: o.ResourceVersion, sum: o.Sum, Size: len(o.Bytes)}
}

// object returns the key of an entry's bytes in the store.
func (v *View) object(name string, e Entry) store.ObjectKey {
	return store.ObjectKey{Scope: v.Scope, Name: name, ResourceVersion: e.Version, Sum: e.sum}
}

// viewHeader is what the store keeps of a view besides its members.
type viewHeader struct {
	APIVersion string `json:"apiVersion,omitempty"` // of the list
	Kind       string `json:"kind,omitempty"`       // of the list; of a Single view, of the objects
	Item       string `json:"item,omitempty"`       // kind of the items, if one of them has it
	Sorted     bool   `json:"sorted,omitempty"`     // see wire.ListMeta
	// Updated is when an apiserver last confirmed or changed the view.
	Updated time.Time `json:"updated,omitzero"`
	// Changed is the version of the last change of a member: no member has changed between
	// it and the view's version.
	Changed string `json:"changed,omitempty"`
	// Denied is set when the apiserver last refused the query, or did not know the kind: the
	// view answers nothing.
	Denied bool `json:"denied,omitempty"`
	// Newest is the highest version of an object in a Single view, past members included.
	Newest string `json:"newest,omitempty"`
	// TooLarge means that the last list was too large to be kept: there is nothing else.
	TooLarge bool `json:"tooLarge,omitempty"`
	// Seen is View.seen of a view that is behind.
	Seen string `json:"seen,omitempty"`
	// Boot is the boot ID of the node when this was written.
	Boot string `json:"boot,omitempty"`
}

func (h *viewHeader) typeMeta() wire.TypeMeta {
	return wire.TypeMeta{APIVersion: h.APIVersion, Kind: h.Kind}
}

// memberCost is roughly what a member takes on disk besides its object, in bytes.
const memberCost = 130

// restore sets the view's state to that on disk; members are read later.
func (v *View) restore(s store.View) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.onDisk { // it was read before the file was opened
		v.disk.Change(&store.Change{ID: s.ID, Op: store.Drop})
		return
	}
	v.loaded, v.onDisk = false, true
	v.version, v.complete, v.members, v.bytes = s.ResourceVersion, s.Complete && !s.Stale, s.Members, s.Bytes
	if err := json.Unmarshal(s.Blob, &v.header); err != nil {
		v.complete = false
	}
	v.Highest.Raise(v.latestLocked())
	v.stale.Store(s.Stale)
	v.used.Store(s.LastUsed.UnixNano())
	if v.header.Boot != "" && v.header.Boot == v.disk.Boot {
		if v.seen = versions.Higher(v.seen, v.header.Seen); s.Stale {
			v.seen = versions.Higher(v.seen, s.ResourceVersion)
		}
	}
	v.saveSeenLocked()
}

// outlive is called when a file has been opened late that is loaded. What the view has, if anything, stays in
// memory, and is not for that file, in which the view has another ID: it is lost.
func (v *View) outlive() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.onDisk {
		v.disk.Change(&store.Change{ID: v.DiskID(), Op: store.Drop})
		v.records.Damaged(v.Key.UserResource(), v.latestLocked())
		v.stale.Store(true)
	}
}

// forgetLocked empties the view. Records keep that it may have seen newer versions than others.
func (v *View) forgetLocked() {
	v.records.SeenUncached(v.Key.UserResource(), v.latestLocked())
	v.contents, v.header = contents{loaded: true, index: map[string]Entry{}}, viewHeader{}
	v.version, v.complete, v.onDisk = "", false, false
	v.stale.Store(false)
}

// loadLocked reads the index from disk. It drops a view that is damaged: no client of this process has received
// its state, which takes the index.
func (v *View) loadLocked() error {
	if v.loaded {
		return nil
	}
	s, _ := v.disk.Now()
	stored, members, err := s.Members(v.DiskID())
	if errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNotFound) {
		v.removeFromDiskLocked()
		return fmt.Errorf("the cache of %s is damaged, and is read again from the cloud: %w", v, err)
	}
	if err != nil {
		return fmt.Errorf("the cache of %s cannot be read: %w", v, err)
	}
	v.index = make(map[string]Entry, len(members))
	for _, m := range members {
		v.index[m.Name] = Entry{Version: m.ResourceVersion, sum: m.Sum, Size: m.Size}
	}
	v.version, v.bytes, v.loaded = stored.ResourceVersion, stored.Bytes, true
	return nil
}

// dropLocked removes the view from memory and disk.
func (v *View) dropLocked() {
	if v.complete {
		v.seenLocked(v.version)
	}
	v.removeFromDiskLocked()
}

func (v *View) removeFromDiskLocked() {
	if v.onDisk {
		v.disk.Change(&store.Change{ID: v.DiskID(), Op: store.Drop})
	}
	v.forgetLocked()
}

// Drop removes the view from memory and disk, because its state is unknown or not needed.
func (v *View) Drop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.dropLocked()
}

// DropAt drops the view if it is still at a version, from which no watch can go on.
func (v *View) DropAt(version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.complete && v.version == version {
		v.dropLocked()
	}
}

// IsStale reports whether changes to the view could not be written.
func (v *View) IsStale() bool { return v.stale.Load() }

// DiskID returns the view's ID in the store. It changes only with the store file.
func (v *View) DiskID() store.ID { return *v.id.Load() }

// Touch records the time of a read.
func (v *View) Touch(now time.Time) { v.used.Store(now.UnixNano()) }

// Hold adds a holder to a view that has one already.
func (v *View) Hold() { v.requests.Add(1) }

// Release undoes Views.Acquire or Hold.
func (v *View) Release() { v.requests.Add(-1) }

// Holders returns how many requests update or read the view now.
func (v *View) Holders() int { return int(v.requests.Load()) }

// String returns the query, without the user, for logs.
func (v *View) String() string {
	q := query.Query{Verb: "list", Resource: v.Key.GVR(), Namespace: v.Key.Namespace, Labels: v.Key.Labels, Fields: v.Key.Fields}
	if v.Key.Single {
		q.Verb = "get"
	}
	return q.String()
}

// usableLocked reports whether the view can answer its query.
func (v *View) usableLocked() bool {
	return v.complete && !v.stale.Load() && !v.header.Denied && !v.behindLocked()
}

// latestLocked returns the highest version that the view has seen.
func (v *View) latestLocked() string {
	if v.Key.Single {
		return v.header.Newest
	}
	return v.version
}

// Position returns the version of the view's state, or "" while there is none.
func (v *View) Position() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.complete || v.stale.Load() {
		return ""
	}
	return v.version
}

// headerLocked returns the header to write to the store.
func (v *View) headerLocked() store.Header {
	h := v.header
	if h.Seen, h.Boot = "", v.disk.Boot; v.behindLocked() {
		h.Seen = v.seen
	}
	blob, err := json.Marshal(h)
	if err != nil {
		panic(err) // strings and bools
	}
	return store.Header{
		Key: v.raw, Scope: v.Scope, ResourceVersion: v.version, Complete: v.complete,
		LastUsed: time.Unix(0, v.used.Load()), Blob: blob,
	}
}

// saveHeaderLocked writes the header of a view that is on disk at version from.
func (v *View) saveHeaderLocked(from string) {
	if v.onDisk && !v.stale.Load() {
		v.disk.Change(&store.Change{ID: v.DiskID(), Op: store.Update, From: from, Header: v.headerLocked()})
	}
}

// Deny records that the user may not read the view, or may again. It does not change the
// members.
func (v *View) Deny(denied bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.denyLocked(denied)
}

func (v *View) denyLocked(denied bool) {
	if !denied {
		v.confirmed = time.Now()
	}
	if v.header.Denied != denied {
		v.header.Denied = denied
		v.saveHeaderLocked(v.version)
	}
}

// IsComplete reports whether the view has all objects that its query selects.
func (v *View) IsComplete() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.complete
}

// IsDamaged reports whether the bytes of a member could not be read. The others can be. A new list
// repairs that.
func (v *View) IsDamaged() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.damaged) > 0
}

// damagedIf records that a member could not be read, if the view still has it.
func (v *View) damagedIf(name string, e Entry) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now, ok := v.index[name]; ok && now.is(e) {
		v.damagedLocked(name)
	}
}

// damagedAt records that a member could not be read, if the view is still at that version. If it is not
// known which, name is empty.
func (v *View) damagedAt(version, name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.version == version {
		v.damagedLocked(name)
	}
}

func (v *View) damagedLocked(name string) {
	if v.damaged == nil {
		v.damaged = map[string]bool{}
	}
	v.damaged[name] = true
}

// Member returns the entry of one member.
func (v *View) Member(name string) (Entry, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stale.Load() || v.header.Denied || v.loadLocked() != nil {
		return Entry{}, false
	}
	e, ok := v.index[name]
	return e, ok
}

// ProvesAbsent reports whether the view proves that an object, last seen at a version, no
// longer exists.
func (v *View) ProvesAbsent(namespace, name, seen string) bool {
	absent, usable := v.absentAt(namespace, name)
	return usable && absent != "" && versions.Compare(absent, seen) >= 0
}

// absentAt returns the version at which the view shows that there is no such object, or "".
// That is a proof only if the view is usable: its user may have lost access, or clients may
// have seen a later state.
func (v *View) absentAt(namespace, name string) (version string, usable bool) {
	k := &v.Key
	if !k.Proves() || k.Namespace != "" && k.Namespace != namespace || k.Fields != "" && k.Fields != query.OnlyName+name {
		return "", false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.complete || v.stale.Load() && !v.loaded || v.loadLocked() != nil {
		return "", false
	}
	if _, ok := v.index[query.MemberName(namespace, name)]; ok {
		return "", false
	}
	return v.version, v.usableLocked()
}
