package cache

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// view is what one query returned. Its index is the truth; the disk follows.
//
// All changes are made under mu, and handed to the disk under it, in order.
type view struct {
	id    atomic.Pointer[store.ID] // changes only with the file; see views.rename
	key   viewKey
	raw   []byte // of the key
	scope string
	repr  wire.Representation
	disk  *disk
	// What is known of single objects goes there; nil in tests of a view alone.
	records *records
	highest *highest // of the versions of its resource; may be nil

	// lost is set when changes to the view could not be kept: its index names
	// objects whose bytes are nowhere. Only a replacement mends that.
	lost     atomic.Bool
	used     atomic.Int64 // when somebody last read it, in Unix nanoseconds
	seenUsed int64        // used, as the last sweep saw it
	unused   int          // sweeps since
	// holders are the requests that feed or read the view now. See views.acquire.
	holders atomic.Int32

	counted usage // what the bounds take the view for; guarded by views.room

	// template is the request of a watch that goes on from a version: should the view
	// get lost, it is not the watch that brings it back.
	template  atomic.Pointer[http.Request]
	relisting relisting

	mu     sync.Mutex
	loaded bool // index is there; until then the view is as its header on disk says
	index  map[string]entry
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
	seen     string
	listing  int    // lists of the hub's own that are under way
	tail     []late // events that came meanwhile, and were beyond the view
	tailSize int    // bytes of them
	onDisk   bool   // a change for the view has been handed to the disk, or read from it
	given    bool   // clients of this process have read of it: what was there may not get older
	members  int    // as the disk says; until loaded
}

// entry is a member in the index.
type entry struct {
	version string
	sum     store.Sum
	size    int
	// quick is a hash of the bytes, to compare them within this process, at a
	// tenth of what sum costs; 0 if it is not known. It is good for comparing what one
	// user reads with what the same user has read, and for nothing else.
	quick uint64
}

// is reports whether these are the same version and bytes.
func (e entry) is(other entry) bool { return e.version == other.version && e.sum == other.sum }

// member is the entry as the store has it.
func (e entry) member(name string) store.Member {
	return store.Member{Name: name, ResourceVersion: e.version, Sum: e.sum, Size: e.size}
}

// entryOf is the entry of an object.
func entryOf(o *store.Object) entry {
	return entry{version: o.ResourceVersion, sum: o.Sum, size: len(o.Bytes)}
}

// object is where an entry's bytes are.
func (v *view) object(name string, e entry) store.ObjectKey {
	return store.ObjectKey{Scope: v.scope, Name: name, ResourceVersion: e.version, Sum: e.sum}
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
	// Seen is view.seen of a view that is behind.
	Seen string `json:"seen,omitempty"`
	// Boot is the bootID of when this was written.
	Boot string `json:"boot,omitempty"`
}

// memberCost is what a member takes on disk besides its object, about.
const memberCost = 130

func newView(d *disk, id store.ID, key viewKey) *view {
	v := &view{key: key, raw: key.bytes(), scope: key.scope(), repr: key.representation(), disk: d}
	v.id.Store(&id)
	return v
}

// restore takes over what the disk says of the view.
func (v *view) restore(s store.View) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.damagedLocked()
	v.forgetLocked()
	v.loaded, v.onDisk = false, true
	v.version, v.complete, v.members, v.bytes = s.ResourceVersion, s.Complete && !s.Stale, s.Members, s.Bytes
	if err := json.Unmarshal(s.Blob, &v.header); err != nil {
		v.complete = false
	}
	v.highest.raise(v.newestLocked())
	v.lost.Store(s.Stale)
	v.used.Store(s.LastUsed.UnixNano())
	if v.header.Boot != "" && v.header.Boot == v.disk.boot {
		if v.seen = higher(v.seen, v.header.Seen); s.Stale {
			v.seen = higher(v.seen, s.ResourceVersion)
		}
	}
	v.saveSeenLocked() // the file may be an older one
}

// forget makes the view one of which nothing is known: it is new, or was in a file that was
// damaged.
func (v *view) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.damagedLocked()
	v.forgetLocked()
}

// give notes that a client was given the view's state, or one of its members.
func (v *view) give() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.given = true
}

// damagedLocked notes what clients were given of the view, before damage on the disk takes
// it away, or a snapshot puts an older state in its place.
func (v *view) damagedLocked() {
	if !v.given {
		return
	}
	if v.complete {
		v.seenLocked(v.version)
	}
	v.records.damaged(v.key.of(), v.newestLocked())
}

// forgetLocked keeps of the view only that nothing older proves what it may have seen.
func (v *view) forgetLocked() {
	v.records.forgot(v.key.of(), v.newestLocked())
	v.index, v.sorted, v.unwritten, v.loaded = map[string]entry{}, nil, weak.Pointer[unwritten]{}, true
	v.reads = reads{}
	v.bytes, v.members, v.version, v.complete, v.onDisk, v.given = 0, 0, "", false, false, false
	v.header = viewHeader{}
	v.lost.Store(false)
}

// loadLocked reads the index. A view that cannot be read whole is dropped.
func (v *view) loadLocked() error {
	if v.loaded {
		return nil
	}
	s, _ := v.disk.now()
	stored, members, err := s.Members(*v.id.Load())
	if errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNotFound) {
		v.dropDamagedLocked()
		return fmt.Errorf("the cache of %s is damaged, and is read again from the cloud: %w", v, err)
	}
	if err != nil {
		return fmt.Errorf("the cache of %s cannot be read: %w", v, err)
	}
	v.index = make(map[string]entry, len(members))
	for _, m := range members {
		v.index[m.Name] = entry{version: m.ResourceVersion, sum: m.Sum, size: m.Size}
	}
	v.version, v.bytes, v.loaded = stored.ResourceVersion, stored.Bytes, true
	return nil
}

// dropLocked removes the view from memory and disk.
func (v *view) dropLocked() {
	if v.complete {
		v.seenLocked(v.version)
	}
	v.removeFromDiskLocked()
}

// dropDamagedLocked removes a view of which something cannot be read.
func (v *view) dropDamagedLocked() {
	v.damagedLocked()
	v.removeFromDiskLocked()
}

func (v *view) removeFromDiskLocked() {
	if v.onDisk {
		v.disk.change(&store.Change{ID: *v.id.Load(), Op: store.Drop})
	}
	v.forgetLocked()
}

func (v *view) drop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.dropLocked()
}

// touch notes that somebody reads the view.
func (v *view) touch(now time.Time) { v.used.Store(now.UnixNano()) }

// release is the end of views.acquire.
func (v *view) release() { v.holders.Add(-1) }

// String is for logs: what is read, not by whom.
func (v *view) String() string {
	q := query{verb: "list", resource: v.key.resource(), namespace: v.key.Namespace, labels: v.key.Labels, fields: v.key.Fields}
	if v.key.Single {
		q.verb = "get"
	}
	return q.String()
}

// usable reports whether the view can answer its query.
func (v *view) usableLocked() bool {
	return v.complete && !v.lost.Load() && !v.header.Denied && !v.behindLocked()
}

// newestLocked is the highest version that the view has seen.
func (v *view) newestLocked() string {
	if v.key.Single {
		return v.header.Newest
	}
	return v.version
}

// position returns the version of the view's state, or "" while there is none.
func (v *view) position() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.complete || v.lost.Load() {
		return ""
	}
	return v.version
}

// headerLocked is what is kept of the view now.
func (v *view) headerLocked() store.Header {
	h := v.header
	if h.Seen, h.Boot = "", v.disk.boot; v.behindLocked() {
		h.Seen = v.seen
	}
	blob, err := json.Marshal(h)
	if err != nil {
		panic(err) // strings and bools
	}
	return store.Header{
		Key: v.raw, Scope: v.scope, ResourceVersion: v.version, Complete: v.complete,
		LastUsed: time.Unix(0, v.used.Load()), Blob: blob,
	}
}

func (v *view) setLocked(name string, e entry) {
	v.removeLocked(name)
	v.index[name] = e
	v.bytes += int64(e.size + len(name) + memberCost)
}

func (v *view) removeLocked(name string) {
	v.sorted, v.unwritten = nil, weak.Pointer[unwritten]{}
	if old, ok := v.index[name]; ok {
		delete(v.index, name)
		delete(v.reads.last, name)
		v.bytes -= int64(old.size + len(name) + memberCost)
	}
}

// deny notes that the user may not read the view, or may again. It does not
// touch what is kept.
func (v *view) deny(denied bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.header.Denied == denied {
		return
	}
	v.header.Denied = denied
	if v.onDisk && !v.lost.Load() {
		v.disk.change(&store.Change{ID: *v.id.Load(), Op: store.Update, From: v.version, Header: v.headerLocked()})
	}
}

// dropIf drops the view if name is still the member that could not be read.
func (v *view) dropIf(name string, e entry) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now, ok := v.index[name]; ok && now.is(e) {
		v.dropDamagedLocked()
	}
}

// dropAt drops the view if it is still at the version at which it could not be read.
func (v *view) dropAt(version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.version == version {
		v.dropDamagedLocked()
	}
}

// member looks one object up.
func (v *view) member(name string) (entry, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lost.Load() || v.header.Denied || v.loadLocked() != nil {
		return entry{}, false
	}
	e, ok := v.index[name]
	return e, ok
}

// onlyName begins the field selector of a view of one object.
const onlyName = "metadata.name="

// proves reports whether what is not in the view is not there: it is of all objects, or of
// those of a name.
func (k *viewKey) proves() bool {
	return !k.Single && k.Labels == "" && (k.Fields == "" || strings.HasPrefix(k.Fields, onlyName) && !strings.Contains(k.Fields, ","))
}

// lacks reports that the view proves that there is no such object, any more if it
// was seen at a version.
func (v *view) lacks(namespace, name, seen string) bool {
	absent, usable := v.absentAt(namespace, name)
	return usable && absent != "" && compare(absent, seen) >= 0
}

// absentAt is the version at which the view shows that there is no such object, or "". That
// proves something only if the view is usable: it may be refused to its user by now, or older
// than what clients have seen of it.
func (v *view) absentAt(namespace, name string) (version string, usable bool) {
	k := &v.key
	if !k.proves() || k.Namespace != "" && k.Namespace != namespace || k.Fields != "" && k.Fields != onlyName+name {
		return "", false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.complete || v.lost.Load() && !v.loaded || v.loadLocked() != nil {
		return "", false
	}
	if _, ok := v.index[memberName(namespace, name)]; ok {
		return "", false
	}
	return v.version, v.usableLocked()
}
