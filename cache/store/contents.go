package store

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"
)

// place is where a sealed record is in the log. The zero place is nowhere: the record was lost.
type place struct {
	at   int64
	size uint32
}

// object is the content of an object, which views share.
type object struct {
	scope, name, version string
	sum                  Sum
	size                 int // of the bytes
	place                place
	whole                bool    // its record was written or checked by this process, and has no damage
	views                int     // that have it as a member
	next                 *object // in contents.objects
}

func (o *object) key() ObjectKey { return ObjectKey{o.scope, o.name, o.version, o.sum} }

// listed is about what a member takes in the record of a commit, in bytes: besides its strings, a sum, a place,
// and the lengths.
func (o *object) listed() int64 { return int64(len(o.name) + len(o.version) + len(o.sum) + 16) }

func (o *object) member() Member {
	return Member{Name: o.name, ResourceVersion: o.version, Sum: o.sum, Size: o.size}
}

// listed is about what a header takes in the record of a commit, in bytes: besides its strings, an ID, a digest, numbers
// and lengths.
func (v *View) listed() int64 {
	return int64(len(v.Key) + len(v.Scope) + len(v.ResourceVersion) + len(v.Blob) + len(v.ID) + 48)
}

// append appends the parts of the key. The first three contain no NUL, and the last one has a fixed length.
func (k ObjectKey) append(b []byte) []byte {
	for _, part := range []string{k.Scope, k.Name, k.ResourceVersion} {
		b = append(append(b, part...), 0)
	}
	return append(b, k.Sum[:]...)
}

// view is a view with its members, by name.
type view struct {
	View
	members map[string]*object
}

// value is a value of a table: its place, or the value itself if it is small.
type value struct {
	place
	small []byte
}

// listed is about what a value takes in the record of a commit, in bytes.
func (v *value) listed(table, key string) int64 {
	return int64(len(table) + len(key) + len(v.small) + 16)
}

// maxSmall is the size up to which values are in the records of commits, and in memory, in bytes.
// These records are on disk twice: a salt, which a whole table depends on, must not be lost with one
// sector.
const maxSmall = 64

// unused is an object that no view has any more, but perhaps a Reader needs.
type unused struct {
	*object
	bytes int64
	since time.Time
}

// Bounds of what is kept for Readers, beyond which the oldest is forgotten: a client that does not read its
// answer must not fill the disk, nor keep a Secret there. An answer that still needs it breaks off.
const (
	maxUnused      = 1 << 16
	maxUnusedBytes = 64 << 20  // a list that is cached has 48 MiB at most, and may be replaced as a whole
	maxUnusedTime  = time.Hour // in which a client that reads 14 kB a second gets such a list
)

// contents is what is in the store, without the bytes. It is not safe for concurrent use.
type contents struct {
	views   map[ID]*view
	objects map[uint64]*object // by hash; those with the same hash are linked
	seed    maphash.Seed
	tables  map[string]map[string]value
	scopes  map[string]string // interned
	live    int64             // size of all bodies that are needed, in bytes
	listed  int64             // about the size of the records that list all views, members and values, in bytes
	unused  []unused          // in the order in which they were removed
	// unusedBytes is the size of their bodies, in bytes.
	unusedBytes int64
	// damaged are objects whose records are.
	damaged map[*object]bool
}

func newContents() *contents {
	return &contents{views: map[ID]*view{}, objects: map[uint64]*object{}, seed: maphash.MakeSeed(), tables: map[string]map[string]value{}, scopes: map[string]string{}, damaged: map[*object]bool{}}
}

// object returns the object with this identity, or nil.
func (c *contents) object(scope, name, version string, sum Sum) *object {
	key := ObjectKey{scope, name, version, sum}
	for o := c.objects[maphash.Comparable(c.seed, key)]; o != nil; o = o.next {
		if o.key() == key {
			return o
		}
	}
	return nil
}

// add adds an object, which must not be there.
func (c *contents) add(o *object) {
	hash := maphash.Comparable(c.seed, o.key())
	o.next, c.objects[hash] = c.objects[hash], o
	c.live += int64(o.place.size)
}

// move records that an object's bytes are at another place.
func (c *contents) move(o *object, to place) {
	c.live += int64(to.size) - int64(o.place.size)
	o.place = to
	delete(c.damaged, o)
}

// isKnown reports whether this process knows if the record of an object is whole.
func (c *contents) isKnown(o *object) bool { return o.whole || c.damaged[o] }

// mark records whether the record of an object is whole.
func (c *contents) mark(o *object, whole bool) {
	if o.whole = whole; whole {
		delete(c.damaged, o)
	} else {
		c.damaged[o] = true
	}
}

// damagedMembers returns the members of views whose objects are known to be damaged.
func (c *contents) damagedMembers() (members []damagedMember) {
	if len(c.damaged) == 0 {
		return nil
	}
	for id, v := range c.views {
		for name, o := range v.members {
			if c.damaged[o] {
				members = append(members, damagedMember{id, name})
			}
		}
	}
	return members
}

// forget removes an object that no view has.
func (c *contents) forget(o *object) {
	c.live -= int64(o.place.size)
	delete(c.damaged, o)
	hash := maphash.Comparable(c.seed, o.key())
	first := c.objects[hash]
	if first == o {
		if c.objects[hash] = o.next; o.next == nil {
			delete(c.objects, hash)
		}
		return
	}
	for ; first != nil; first = first.next {
		if first.next == o {
			first.next = o.next
		}
	}
}

// forgetUnused removes the objects that no view has: all of them, or those beyond the bounds.
func (c *contents) forgetUnused(all bool) {
	n := 0
	for _, u := range c.unused {
		if !all && len(c.unused)-n <= maxUnused && c.unusedBytes <= maxUnusedBytes && time.Since(u.since) < maxUnusedTime {
			break
		}
		n++
		c.unusedBytes -= u.bytes
		if o := u.object; o.views == 0 && c.object(o.scope, o.name, o.version, o.sum) == o {
			c.forget(o)
		}
	}
	if c.unused = slices.Delete(c.unused, 0, n); len(c.unused) == 0 {
		c.unused = nil // a start may have had many
	}
}

// set makes an object the member with its name, or removes that if o is nil.
func (c *contents) set(v *view, name string, o *object) {
	old := v.members[name]
	if old == o {
		return
	}
	if old != nil {
		v.count(old, -1)
		c.listed -= old.listed()
		if old.views--; old.views == 0 {
			c.unused = append(c.unused, unused{old, int64(old.place.size), time.Now()})
			c.unusedBytes += int64(old.place.size)
		}
		delete(v.members, name)
	}
	if o != nil {
		o.views++
		v.count(o, +1)
		c.listed += o.listed()
		v.members[o.name] = o
	}
}

// clear removes all members of a view.
func (c *contents) clear(v *view) {
	for name := range v.members {
		c.set(v, name, nil)
	}
}

// put sets or removes a value of a table.
func (c *contents) put(table, key string, v *value) {
	t := c.tables[table]
	if t == nil {
		t = map[string]value{}
		c.tables[table] = t
	}
	if old, had := t[key]; had {
		c.live -= int64(old.size)
		c.listed -= old.listed(table, key)
	}
	if v == nil {
		delete(t, key)
		return
	}
	c.live += int64(v.size)
	c.listed += v.listed(table, key)
	t[key] = *v
}

// apply applies the record of a commit.
func (c *contents) apply(r *commitRecord) {
	for i := range r.views {
		c.applyView(&r.views[i])
	}
	for _, p := range r.pairs {
		c.put(p.table, p.key, p.value)
	}
}

func (c *contents) applyView(change *viewRecord) {
	v := c.views[change.header.ID]
	if v != nil {
		c.listed -= v.listed()
	}
	if change.dropped {
		if v != nil {
			c.clear(v)
			delete(c.views, v.ID)
		}
		return
	}
	if v == nil {
		v = &view{View: View{ID: change.header.ID}, members: make(map[string]*object, len(change.put))}
		c.views[v.ID] = v
	}
	if change.cleared {
		c.clear(v)
	}
	for _, name := range change.remove {
		c.set(v, name, nil)
	}
	for _, o := range change.put {
		if had := c.object(o.scope, o.name, o.version, o.sum); had == nil {
			c.add(o)
		} else if had != o {
			c.move(had, o.place)
			had.size, had.whole = o.size, o.whole
			o = had
		}
		c.set(v, o.name, o)
	}
	v.adopt(&change.header)
	c.listed += v.listed()
}

// adopt sets the header. If the members are not those that the header counts, a commit before was lost.
func (v *view) adopt(header *View) {
	is := v.View
	v.View = *header
	if is.Members != header.Members || is.Bytes != header.Bytes || is.digest != header.digest {
		v.Members, v.Bytes, v.digest = is.Members, is.Bytes, is.digest
		v.Err = ofView(v.ID, "", corrupt(errLostCommit))
	}
}

// sorted returns the members in order of their names.
func (v *view) sorted() []Member {
	members := make([]Member, 0, len(v.members))
	for _, o := range v.members {
		members = append(members, o.member())
	}
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return members
}

// ids returns the IDs of all views, in order.
func (c *contents) ids() []ID {
	return slices.SortedFunc(maps.Keys(c.views), func(a, b ID) int { return cmp.Compare(string(a[:]), string(b[:])) })
}

// scope returns an interned scope.
func (c *contents) scope(s []byte) string {
	known, ok := c.scopes[string(s)]
	if !ok {
		known = string(s)
		c.scopes[known] = known
	}
	return known
}
