package cache

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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

	// lost is set when changes to the view could not be kept: its index names
	// objects whose bytes are nowhere. Only a replacement mends that.
	lost     atomic.Bool
	used     atomic.Int64 // when somebody last read it, in Unix nanoseconds
	seenUsed int64        // used, as the last sweep saw it
	unused   int          // sweeps since
	// holders are the requests that feed or read the view now. See views.acquire.
	holders atomic.Int32

	// template is a request of who last watched the view.
	template  atomic.Pointer[http.Request]
	relisting relisting

	mu     sync.Mutex
	loaded bool // index is there; until then the view is as its header on disk says
	index  map[string]entry
	sorted []store.Member // of index, while nothing has changed since it was asked for
	bytes  int64          // of all members, about as store.View counts them
	header viewHeader
	// version is the last that is proven for the members; of a Single view, a count of changes.
	version  string
	complete bool
	listing  int    // lists of the hub's own that are under way
	tail     []late // events that came meanwhile, and were beyond the view
	tailSize int    // bytes of them
	onDisk   bool   // a change for the view has been handed to the disk, or read from it
	members  int    // as the disk says; until loaded
}

// entry is a member in the index.
type entry struct {
	version string
	size    int
}

// viewHeader is what is kept with a view besides its members.
type viewHeader struct {
	APIVersion string `json:"apiVersion,omitempty"` // of the list
	Kind       string `json:"kind,omitempty"`       // of the list; of a Single view, of the objects
	Item       string `json:"item,omitempty"`       // kind of the items, where one has said it
	Sorted     bool   `json:"sorted,omitempty"`     // see wire.ListMeta
	// Changed is the version of the last change of a member: from there to the
	// view's version nothing has happened.
	Changed string `json:"changed,omitempty"`
	// Denied is set when the user was last refused the view, or its kind was not
	// there: nothing of it is handed out.
	Denied bool `json:"denied,omitempty"`
	// Refused are names of a Single view that the user was last refused one by one.
	Refused []string `json:"refused,omitempty"`
}

// memberCost is what a member takes on disk besides its object, about.
const memberCost = 100

func newView(d *disk, id store.ID, key viewKey) *view {
	v := &view{key: key, raw: key.bytes(), scope: key.scope(), repr: key.representation(), disk: d}
	v.id.Store(&id)
	return v
}

// restore takes over what the disk says of the view.
func (v *view) restore(s store.View) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.forgetLocked()
	v.loaded, v.onDisk = false, true
	v.version, v.complete, v.members, v.bytes = s.ResourceVersion, s.Complete && !s.Stale, s.Members, s.Bytes
	if err := json.Unmarshal(s.Blob, &v.header); err != nil {
		v.complete = false
	}
	v.lost.Store(s.Stale)
	v.used.Store(s.LastUsed.UnixNano())
}

// forget makes the view one of which nothing is known.
func (v *view) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.forgetLocked()
}

func (v *view) forgetLocked() {
	v.index, v.sorted, v.loaded = map[string]entry{}, nil, true
	v.bytes, v.members, v.version, v.complete, v.onDisk = 0, 0, "", false, false
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
		v.dropLocked()
		return fmt.Errorf("the cache of %s is damaged, and is read again from the cloud: %w", v, err)
	}
	if err != nil {
		return fmt.Errorf("the cache of %s cannot be read: %w", v, err)
	}
	v.index = make(map[string]entry, len(members))
	for _, m := range members {
		v.index[m.Name] = entry{m.ResourceVersion, m.Size}
	}
	v.version, v.bytes, v.loaded = stored.ResourceVersion, stored.Bytes, true
	return nil
}

// dropLocked removes the view from memory and disk.
func (v *view) dropLocked() {
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
	return v.complete && !v.lost.Load() && !v.header.Denied
}

// position returns the view's version, or "" while it is not usable.
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
	blob, err := json.Marshal(v.header)
	if err != nil {
		panic(err) // strings and bools
	}
	return store.Header{
		Key: v.raw, Scope: v.scope, ResourceVersion: v.version, Complete: v.complete,
		LastUsed: time.Unix(0, v.used.Load()), Blob: blob,
	}
}

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
	a := v.followsLocked(from, c.version)
	if a == isBeyond && v.waitLocked(from, c) {
		return isKnown
	}
	if a != isNews {
		return a
	}
	if v.loadLocked() != nil {
		return isBeyond
	}
	update := store.Change{ID: *v.id.Load(), Op: store.Update, From: v.version}
	v.version = c.version
	switch {
	case c.name == "":
	case c.object == nil:
		v.header.Changed = c.version
		v.removeLocked(c.name)
		update.Delete = []string{c.name}
	default:
		v.header.Changed = c.version
		v.setLocked(c.name, entry{c.version, len(c.object)})
		update.Put = []store.Object{{Name: c.name, ResourceVersion: c.version, Bytes: c.object}}
	}
	update.Header = v.headerLocked()
	v.disk.change(&update)
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
	case !v.complete || v.lost.Load() || compare(from, v.version) > 0:
		return isBeyond
	case compare(version, v.version) <= 0:
		return isKnown
	}
	return isNews
}

func (v *view) setLocked(name string, e entry) {
	v.removeLocked(name)
	v.index[name] = e
	v.bytes += int64(e.size + len(name) + memberCost)
}

func (v *view) removeLocked(name string) {
	v.sorted = nil
	if old, ok := v.index[name]; ok {
		delete(v.index, name)
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

// maxSingles bounds a Single view. A kubelet reads some dozen objects one by one.
const maxSingles = 1024

// keepSingle takes over an object that was read by itself, unless a newer one is
// there; one that is older than what was there when it was asked for, at version
// began, says that the apiservers' store was restored from a backup.
func (v *view) keepSingle(t wire.TypeMeta, name, began, version string, object []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lost.Load() {
		v.dropLocked()
	}
	if v.loadLocked() != nil {
		return
	}
	if old, ok := v.index[name]; ok && compare(old.version, version) >= 0 && compare(version, began) >= 0 {
		return
	}
	before := v.version
	v.countLocked()
	v.header.APIVersion, v.header.Kind = t.APIVersion, t.Kind
	v.setLocked(name, entry{version, len(object)})
	update := store.Change{
		ID: *v.id.Load(), Op: store.Update, From: before, New: before == "",
		Put: []store.Object{{Name: name, ResourceVersion: version, Bytes: object}},
	}
	if len(v.index) > maxSingles {
		oldest := v.oldestLocked()
		v.removeLocked(oldest)
		update.Delete = []string{oldest}
	}
	update.Header, v.onDisk = v.headerLocked(), true
	v.disk.change(&update)
}

// discard forgets an object of a Single view, which is known to be gone since version.
func (v *view) discard(name, version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.loadLocked() != nil {
		return
	}
	old, ok := v.index[name]
	if !ok || v.lost.Load() || version != "" && compare(old.version, version) > 0 {
		return
	}
	before := v.version
	v.countLocked()
	v.removeLocked(name)
	v.disk.change(&store.Change{ID: *v.id.Load(), Op: store.Update, From: before, Header: v.headerLocked(), Delete: []string{name}})
}

// maxRefused bounds the names that are remembered as refused; then the oldest go.
const maxRefused = 256

// refuse notes that the user may not read one object.
func (v *view) refuse(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lost.Load() || v.loadLocked() != nil || slices.Contains(v.header.Refused, name) {
		return
	}
	before := v.version
	v.countLocked()
	v.removeLocked(name)
	v.header.Refused = append(v.header.Refused, name)
	if n := len(v.header.Refused); n > maxRefused {
		v.header.Refused = slices.Clone(v.header.Refused[n-maxRefused:])
	}
	update := store.Change{ID: *v.id.Load(), Op: store.Update, From: before, New: before == "", Header: v.headerLocked(), Delete: []string{name}}
	v.onDisk = true
	v.disk.change(&update)
}

// admit takes back what refuse has noted.
func (v *view) admit(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before := v.version
	v.countLocked()
	v.header.Refused = slices.DeleteFunc(slices.Clone(v.header.Refused), func(other string) bool { return other == name })
	v.disk.change(&store.Change{ID: *v.id.Load(), Op: store.Update, From: before, Header: v.headerLocked()})
}

// refuses reports what refuse has noted.
func (v *view) refuses(name string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Contains(v.header.Refused, name)
}

// countLocked gives a Single view, which has no resourceVersion, the next version.
func (v *view) countLocked() {
	n, _ := strconv.ParseUint(v.version, 10, 64) // "" is 0
	v.version = strconv.FormatUint(n+1, 10)
}

func (v *view) oldestLocked() string {
	var oldest string
	for name, e := range v.index {
		if oldest == "" || compare(e.version, v.index[oldest].version) < 0 {
			oldest = name
		}
	}
	return oldest
}

// dropIf drops the view if name is still the member that could not be read.
func (v *view) dropIf(name, version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e, ok := v.index[name]; ok && e.version == version {
		v.dropLocked()
	}
}

// dropAt drops the view if it is still at the version at which it could not be read.
func (v *view) dropAt(version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.version == version {
		v.dropLocked()
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

// lacks reports that the view proves that there is no such object, any more if it
// was seen at a version.
func (v *view) lacks(namespace, name, seen string) bool {
	k := &v.key
	if k.Single || k.Labels != "" || k.Namespace != "" && k.Namespace != namespace {
		return false
	}
	if k.Fields != "" && k.Fields != "metadata.name="+name {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.usableLocked() || compare(v.version, seen) < 0 || v.loadLocked() != nil {
		return false
	}
	_, ok := v.index[memberName(namespace, name)]
	return !ok
}

// snapshot is a view's members at one version. What was not on disk yet is held
// by it; the rest is read from the disk through its reader.
type snapshot struct {
	version string
	changed string
	meta    wire.ListMeta
	members []store.Member
	pending map[string][]byte // by name
	reader  *store.Reader     // to be closed
}

// snapshot returns nil where the view cannot answer.
func (v *view) snapshot() (*snapshot, error) {
	s, w := v.disk.now()
	reader := s.NewReader(v.scope) // from here on nothing that is in the index goes
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.usableLocked() {
		reader.Close()
		return nil, nil
	}
	if err := v.loadLocked(); err != nil {
		reader.Close()
		return nil, err
	}
	snap := &snapshot{
		version: v.version, changed: v.header.Changed, reader: reader,
		meta: wire.ListMeta{
			TypeMeta: wire.TypeMeta{APIVersion: v.header.APIVersion, Kind: v.header.Kind}, ResourceVersion: v.version, Sorted: v.header.Sorted,
		},
		members: v.sortedLocked(),
		pending: map[string][]byte{},
	}
	if w.Pending() == 0 {
		return snap, nil
	}
	for name, e := range v.index {
		if b, ok := w.Object(store.ObjectKey{Scope: v.scope, Name: name, ResourceVersion: e.version}); ok {
			snap.pending[name] = b
		}
	}
	return snap, nil
}

// sortedLocked returns the members in order. Nobody may change them. They are kept
// for the next who asks: while the cloud is away nothing changes.
func (v *view) sortedLocked() []store.Member {
	if v.sorted == nil {
		v.sorted = make([]store.Member, 0, len(v.index))
		for name, e := range v.index {
			v.sorted = append(v.sorted, store.Member{Name: name, ResourceVersion: e.version, Size: e.size})
		}
		slices.SortFunc(v.sorted, func(a, b store.Member) int { return strings.Compare(a.Name, b.Name) })
	}
	return v.sorted
}

// each calls fn for the next members, about 256 KiB of them, and takes them off
// the snapshot. Bytes are valid until fn returns.
func (s *snapshot) next(fn func(store.Object) error) error {
	for len(s.members) > 0 {
		m := s.members[0]
		b, ok := s.pending[m.Name]
		if !ok {
			break
		}
		if err := fn(store.Object{Name: m.Name, ResourceVersion: m.ResourceVersion, Bytes: b}); err != nil {
			return err
		}
		s.members = s.members[1:]
	}
	stored := s.members
	if len(s.pending) > 0 {
		end := slices.IndexFunc(stored, func(m store.Member) bool { _, ok := s.pending[m.Name]; return ok })
		if end >= 0 {
			stored = stored[:end]
		}
	}
	if len(stored) == 0 {
		return nil
	}
	n, err := s.reader.Read(stored, fn)
	s.members = s.members[n:]
	return err
}
