package view

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/edgehub-io/edgehub/cache/disk"
	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/versions"
)

// View is what one query returned. Its index is the truth; the disk follows.
//
// All changes are made under mu, and handed to the disk under it, in order.
type View struct {
	id    atomic.Pointer[store.ID] // changes only with the file; see Views.rename
	Key   query.Key
	raw   []byte // of the key
	Scope string
	Repr  negotiation.Representation
	disk  *disk.Disk
	// What is known of single objects goes there; nil in tests of a view alone.
	records *records.Records
	Highest *records.Highest // of the versions of its resource; may be nil

	// stale is set when changes to the view could not be kept: its index names
	// objects whose bytes are nowhere. Only a replacement mends that.
	stale    atomic.Bool
	used     atomic.Int64 // when somebody last read it, in Unix nanoseconds
	seenUsed int64        // used, as the last sweep saw it
	unused   int          // sweeps since
	// requests are those that feed or read the view now. See Views.Acquire.
	requests atomic.Int32

	counted usage // what the bounds take the view for; guarded by Views.room

	// Template is the request of a watch that goes on from a version: should the view
	// get lost, it is not the watch that brings it back.
	Template atomic.Pointer[http.Request]

	mu     sync.Mutex
	loaded bool // index is there; until then the view is as its header on disk says
	index  map[string]Entry
	reads  reads          // of the members of a Single view
	sorted []store.Member // of index, while nothing has changed since it was asked for
	// unwritten is that of snapshots of the view as it is, while there are any.
	unwritten weak.Pointer[unwritten]
	bytes     int64 // of all members, about as store.View counts them
	header    viewHeader
	// version is the last that is proven for the members; of a Single view, a count of changes.
	version  string
	complete bool
	// seen is the latest version whose state a client was given while the view did not
	// have it; see behindLocked. It outlives what is dropped.
	seen        string
	listing     int        // lists of the hub's own that are under way
	backlog     []buffered // events that came meanwhile, and were beyond the view
	backlogSize int        // bytes of them
	onDisk      bool       // a change for the view has been handed to the disk, or read from it
	given       bool       // clients of this process have read of it: what was there may not get older
	members     int        // as the disk says; until loaded
}

// Entry is a member in the index.
type Entry struct {
	Version string
	sum     store.Sum
	Size    int
	// quick is a hash of the bytes, to compare them within this process, at a
	// tenth of what sum costs; 0 if it is not known. It is good for comparing what one
	// user reads with what the same user has read, and for nothing else.
	quick uint64
}

// is reports whether these are the same version and bytes.
func (e Entry) is(other Entry) bool { return e.Version == other.Version && e.sum == other.sum }

// Member is the entry as the store has it.
func (e Entry) Member(name string) store.Member {
	return store.Member{Name: name, ResourceVersion: e.Version, Sum: e.sum, Size: e.Size}
}

// entryOf is the entry of an object.
func entryOf(o *store.Object) Entry {
	return Entry{Version: o.ResourceVersion, sum: o.Sum, Size: len(o.Bytes)}
}

// object is where an entry's bytes are.
func (v *View) object(name string, e Entry) store.ObjectKey {
	return store.ObjectKey{Scope: v.Scope, Name: name, ResourceVersion: e.Version, Sum: e.sum}
}

// viewHeader is what is kept with a view besides its members.
type viewHeader struct {
	APIVersion string `json:"apiVersion,omitempty"` // of the list
	Kind       string `json:"kind,omitempty"`       // of the list; of a Single view, of the objects
	Item       string `json:"item,omitempty"`       // kind of the items, where one has said it
	Sorted     bool   `json:"sorted,omitempty"`     // see wire.ListMeta
	// Updated is when an apiserver last confirmed or changed the view.
	Updated time.Time `json:"updated,omitzero"`
	// Changed is the version of the last change of a member: from there to the
	// view's version nothing has happened.
	Changed string `json:"changed,omitempty"`
	// Denied is set when the user was last refused the view, or its kind was not
	// there: nothing of it is handed out.
	Denied bool `json:"denied,omitempty"`
	// Newest is the highest version that a Single view has seen.
	Newest string `json:"newest,omitempty"`
	// Seen is View.seen of a view that is behind.
	Seen string `json:"seen,omitempty"`
	// Boot is the boot ID of when this was written.
	Boot string `json:"boot,omitempty"`
}

// memberCost is what a member takes on disk besides its object, about.
const memberCost = 130

func newView(d *disk.Disk, id store.ID, key query.Key) *View {
	v := &View{Key: key, raw: key.Bytes(), Scope: key.Scope(), Repr: key.Repr(), disk: d}
	v.id.Store(&id)
	return v
}

// restore takes over what the disk says of the view.
func (v *View) restore(s store.View) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.damagedLocked()
	v.forgetLocked()
	v.loaded, v.onDisk = false, true
	v.version, v.complete, v.members, v.bytes = s.ResourceVersion, s.Complete && !s.Stale, s.Members, s.Bytes
	if err := json.Unmarshal(s.Blob, &v.header); err != nil {
		v.complete = false
	}
	v.Highest.Raise(v.newestLocked())
	v.stale.Store(s.Stale)
	v.used.Store(s.LastUsed.UnixNano())
	if v.header.Boot != "" && v.header.Boot == v.disk.Boot {
		if v.seen = versions.Higher(v.seen, v.header.Seen); s.Stale {
			v.seen = versions.Higher(v.seen, s.ResourceVersion)
		}
	}
	v.saveSeenLocked() // the file may be an older one
}

// forget makes the view one of which nothing is known: it is new, or was in a file that was
// damaged.
func (v *View) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.damagedLocked()
	v.forgetLocked()
}

// Give notes that a client was given the view's state, or one of its members.
func (v *View) Give() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.given = true
}

// damagedLocked notes what clients were given of the view, before damage on the disk takes
// it away, or a snapshot puts an older state in its place.
func (v *View) damagedLocked() {
	if !v.given {
		return
	}
	if v.complete {
		v.seenLocked(v.version)
	}
	v.records.Damaged(v.Key.UserResource(), v.newestLocked())
}

// forgetLocked keeps of the view only that nothing older proves what it may have seen.
func (v *View) forgetLocked() {
	v.records.Forgot(v.Key.UserResource(), v.newestLocked())
	v.index, v.sorted, v.unwritten, v.loaded = map[string]Entry{}, nil, weak.Pointer[unwritten]{}, true
	v.reads = reads{}
	v.bytes, v.members, v.version, v.complete, v.onDisk, v.given = 0, 0, "", false, false, false
	v.header = viewHeader{}
	v.stale.Store(false)
}

// loadLocked reads the index. A view that cannot be read whole is dropped.
func (v *View) loadLocked() error {
	if v.loaded {
		return nil
	}
	s, _ := v.disk.Now()
	stored, members, err := s.Members(*v.id.Load())
	if errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNotFound) {
		v.dropDamagedLocked()
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

// dropDamagedLocked removes a view of which something cannot be read.
func (v *View) dropDamagedLocked() {
	v.damagedLocked()
	v.removeFromDiskLocked()
}

func (v *View) removeFromDiskLocked() {
	if v.onDisk {
		v.disk.Change(&store.Change{ID: *v.id.Load(), Op: store.Drop})
	}
	v.forgetLocked()
}

func (v *View) drop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.dropLocked()
}

// IsStale reports whether changes to the view could not be kept.
func (v *View) IsStale() bool { return v.stale.Load() }

// DiskID is what the view is called on disk. It changes only with the file.
func (v *View) DiskID() store.ID { return *v.id.Load() }

// Lists is how many lists of the hub's own are under way.
func (v *View) Lists() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.listing
}

// Touch notes that somebody reads the view.
func (v *View) Touch(now time.Time) { v.used.Store(now.UnixNano()) }

// Hold makes somebody who has the view one more of its holders.
func (v *View) Hold() { v.requests.Add(1) }

// Release is the end of Views.Acquire, and of hold.
func (v *View) Release() { v.requests.Add(-1) }

// Holders is how many requests feed or read the view now.
func (v *View) Holders() int { return int(v.requests.Load()) }

// String is for logs: what is read, not by whom.
func (v *View) String() string {
	q := query.Query{Verb: "list", Resource: v.Key.GVR(), Namespace: v.Key.Namespace, Labels: v.Key.Labels, Fields: v.Key.Fields}
	if v.Key.Single {
		q.Verb = "get"
	}
	return q.String()
}

// usable reports whether the view can answer its query.
func (v *View) usableLocked() bool {
	return v.complete && !v.stale.Load() && !v.header.Denied && !v.behindLocked()
}

// newestLocked is the highest version that the view has seen.
func (v *View) newestLocked() string {
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

// headerLocked is what is kept of the view now.
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

func (v *View) setLocked(name string, e Entry) {
	v.removeLocked(name)
	v.index[name] = e
	v.bytes += int64(e.Size + len(name) + memberCost)
}

func (v *View) removeLocked(name string) {
	v.sorted, v.unwritten = nil, weak.Pointer[unwritten]{}
	if old, ok := v.index[name]; ok {
		delete(v.index, name)
		delete(v.reads.last, name)
		v.bytes -= int64(old.Size + len(name) + memberCost)
	}
}

// Deny notes that the user may not read the view, or may again. It does not
// touch what is kept.
func (v *View) Deny(denied bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.header.Denied == denied {
		return
	}
	v.header.Denied = denied
	if v.onDisk && !v.stale.Load() {
		v.disk.Change(&store.Change{ID: *v.id.Load(), Op: store.Update, From: v.version, Header: v.headerLocked()})
	}
}

// IsComplete reports whether the view has all that its query selects.
func (v *View) IsComplete() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.complete
}

// DropComplete drops the view if it is complete.
func (v *View) DropComplete() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.complete {
		v.dropLocked()
	}
}

// dropIf drops the view if name is still the member that could not be read.
func (v *View) dropIf(name string, e Entry) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now, ok := v.index[name]; ok && now.is(e) {
		v.dropDamagedLocked()
	}
}

// dropAt drops the view if it is still at the version at which it could not be read.
func (v *View) dropAt(version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.version == version {
		v.dropDamagedLocked()
	}
}

// Member looks one object up.
func (v *View) Member(name string) (Entry, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stale.Load() || v.header.Denied || v.loadLocked() != nil {
		return Entry{}, false
	}
	e, ok := v.index[name]
	return e, ok
}

// ProvesAbsent reports that the view proves that there is no such object, any more if it
// was seen at a version.
func (v *View) ProvesAbsent(namespace, name, seen string) bool {
	absent, usable := v.absentAt(namespace, name)
	return usable && absent != "" && versions.Compare(absent, seen) >= 0
}

// absentAt is the version at which the view shows that there is no such object, or "". That
// proves something only if the view is usable: it may be refused to its user by now, or older
// than what clients have seen of it.
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
