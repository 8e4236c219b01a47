package store

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

// Commit applies a batch, and returns when it is on disk. After an error nothing has changed, in
// memory and on disk, unless the sync failed: then the disk may have the new state. The batch can be
// committed again in either case.
//
// An error caused by one change is an *Error that names its view: the others can be committed
// without it.
//
// Commit keeps no reference to the batch.
func (s *Store) Commit(b Batch) error {
	if err := s.commit(&b); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

func (s *Store) commit(b *Batch) error {
	if err := b.validate(); err != nil {
		return err
	}
	s.write.Lock()
	defer s.write.Unlock()
	if s.closed {
		return ErrClosed
	}
	if err := s.writable(); err != nil {
		return err
	}
	s.checkGiven(b)
	st := &stage{contents: s.contents, bytes: map[ObjectKey][]byte{}, objects: map[ObjectKey]*object{}, views: map[ID]*stagedView{}}
	if err := s.reading(func(*contents) error { return st.stage(b) }); err != nil {
		return err
	}
	to := s.log.appender(s.number + 1)
	record := st.record(s.codec, to)
	if len(record.views)+len(record.pairs) == 0 {
		s.install(record)
		return nil
	}
	if err := s.append(to, record); err != nil {
		return err
	}
	s.install(record)
	s.grow()
	return nil
}

// checkGiven finds out whether the stored records of objects that are given are whole. If not, they are written.
func (s *Store) checkGiven(b *Batch) {
	for i := range b.Changes {
		c := &b.Changes[i]
		for j := range c.Put {
			if o := &c.Put[j]; o.Bytes != nil {
				s.check(o.key(c.Header.Scope))
			}
		}
	}
}

func (b *Batch) validate() error {
	for i := range b.Changes {
		if err := b.Changes[i].Validate(); err != nil {
			return err
		}
	}
	for i := range b.Pairs {
		if err := b.Pairs[i].Validate(); err != nil {
			return err
		}
	}
	return nil
}

// append writes and syncs a commit. The sync of the log is the commit point.
func (s *Store) append(to *appender, record *commitRecord) error {
	sealed := record.seal(s.codec, to)
	err := to.err
	if err == nil && !s.synced { // after a power cut the log before may have its name again
		err = s.dir.sync()
		s.synced = err == nil
	}
	if err == nil {
		err = s.log.file.Sync()
	}
	if err != nil {
		_ = s.log.file.Truncate(s.log.end) // at the latest the next commit overwrites it
		return spaceError(err)
	}
	s.log.end = to.at
	s.index.add(record.number, sealed)
	size := s.log.end + s.index.end
	s.written.Add(size - s.size.Swap(size))
	return nil
}

// seal writes the bodies and the record of a commit to the log, and returns the sealed record.
func (r *commitRecord) seal(c seal.Codec, to *appender) []byte {
	to.flush()
	r.at = to.at
	sealed := c.Seal(seal.At(seal.KindCommit, to.id[:], nil), r.encode())
	to.end(sealed)
	return sealed
}

// install makes a commit that is on disk the state that is read.
func (s *Store) install(record *commitRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contents.apply(record)
	for _, p := range record.pairs {
		if s.settled != nil {
			s.settled[p.table] = true
		}
	}
	s.contents.forgetUnused(s.readers.Load() == 0)
	if len(record.views)+len(record.pairs) > 0 {
		if s.lost > 0 {
			s.rewriteSoon() // in this log the next start finds the loss
		}
		s.number, s.changed, s.lost = record.number, true, 0
	}
}

// stage is the changes of a batch, before they are written.
type stage struct {
	*contents
	bytes   map[ObjectKey][]byte  // given in the batch
	objects map[ObjectKey]*object // new ones
	views   map[ID]*stagedView
	pairs   []Pair
}

// stagedView is a changed view.
type stagedView struct {
	base    *view // nil if it is not there before
	header  View
	exists  bool
	cleared bool
	members map[string]*object // changed ones; nil if removed
}

func (st *stage) stage(b *Batch) error {
	for i := range b.Changes {
		c := &b.Changes[i]
		for j := range c.Put {
			if o := &c.Put[j]; o.Bytes != nil {
				st.bytes[o.key(c.Header.Scope)] = o.Bytes
			}
		}
	}
	for i := range b.Changes {
		c := &b.Changes[i]
		if err := st.change(st.view(c.ID), c); err != nil {
			return ofView(c.ID, "", err)
		}
	}
	st.pairs = b.Pairs
	return nil
}

func (st *stage) view(id ID) *stagedView {
	v := st.views[id]
	if v == nil {
		v = &stagedView{base: st.contents.views[id], header: View{ID: id}, members: map[string]*object{}}
		if v.base != nil {
			v.header, v.exists = v.base.View, true
		}
		st.views[id] = v
	}
	return v
}

func (st *stage) change(v *stagedView, c *Change) error {
	switch c.Op {
	case Drop:
		v.clear()
		v.header, v.exists = View{ID: c.ID}, false
		return nil
	case MarkStale:
		if v.header.Err != nil { // the record of this commit would not show it any more
			return v.header.Err
		}
		v.header.Stale = v.exists
		return nil
	case Replace:
		return st.replace(v, c)
	}
	switch h := &v.header; {
	case !v.exists && c.New && c.From == "":
		return st.replace(v, c)
	case !v.exists:
		return fmt.Errorf("%w: it is not there", ErrConflict)
	case h.Err != nil:
		return h.Err
	case h.Stale:
		return fmt.Errorf("%w: it is stale", ErrConflict)
	case h.ResourceVersion != c.From && h.ResourceVersion != c.Header.ResourceVersion:
		return fmt.Errorf("%w: it is at version %q, not %q", ErrConflict, h.ResourceVersion, c.From)
	case h.Scope != c.Header.Scope:
		return fmt.Errorf("%w: its scope is %q, not %q", ErrConflict, h.Scope, c.Header.Scope)
	}
	return st.update(v, c)
}

// replace makes the contents of a view those of c.
func (st *stage) replace(v *stagedView, c *Change) error {
	if v.header.Err != nil || v.header.Scope != c.Header.Scope {
		v.clear()
	}
	stay := make(map[string]bool, len(c.Put))
	for i := range c.Put {
		stay[c.Put[i].Name] = true
	}
	for name := range v.all() {
		if !stay[name] {
			v.set(name, nil)
		}
	}
	v.header.Stale, v.exists = false, true
	return st.update(v, c)
}

func (st *stage) update(v *stagedView, c *Change) error {
	v.header.Header = c.Header
	v.header.Key, v.header.Blob = slices.Clone(c.Header.Key), slices.Clone(c.Header.Blob)
	v.header.Scope = st.scope([]byte(c.Header.Scope))
	v.header.LastUsed = c.Header.LastUsed.Truncate(time.Millisecond)
	for _, name := range c.Delete {
		v.set(name, nil)
	}
	for i := range c.Put {
		o, err := st.object(c.Header.Scope, &c.Put[i])
		if err != nil {
			return ofView(c.ID, c.Put[i].Name, err)
		}
		v.set(o.name, o)
	}
	return nil
}

// object returns the object of a member: one that is stored, or a new one of bytes that are given.
func (st *stage) object(scope string, of *Object) (*object, error) {
	key := of.key(scope)
	if o := st.objects[key]; o != nil {
		return o, nil
	}
	stored := st.contents.object(scope, of.Name, of.ResourceVersion, of.Sum)
	if stored != nil && !st.damaged[stored] {
		return stored, nil
	}
	b, given := st.bytes[key]
	if !given {
		return nil, ErrNoObject
	}
	o := &object{scope: st.scope([]byte(scope)), name: of.Name, version: of.ResourceVersion, sum: of.Sum, size: len(b), whole: true}
	st.objects[key] = o
	return o, nil
}

// clear removes all members.
func (v *stagedView) clear() {
	v.header.Members, v.header.Bytes, v.header.digest, v.header.Err = 0, 0, 0, nil
	v.cleared = true
	clear(v.members)
}

// get returns a member, or nil.
func (v *stagedView) get(name string) *object {
	if o, ok := v.members[name]; ok || v.cleared || v.base == nil {
		return o
	}
	return v.base.members[name]
}

// all returns the names of all members.
func (v *stagedView) all() map[string]bool {
	names := map[string]bool{}
	if v.base != nil && !v.cleared {
		for name := range v.base.members {
			names[name] = true
		}
	}
	for name, o := range v.members {
		names[name] = o != nil
	}
	maps.DeleteFunc(names, func(_ string, there bool) bool { return !there })
	return names
}

func (v *stagedView) set(name string, o *object) {
	old := v.get(name)
	if old == o {
		return
	}
	if old != nil {
		v.header.count(old, -1)
	}
	if v.members[name] = o; o != nil {
		v.header.count(o, +1)
	}
}

// record returns the changes as the record of a commit. It appends the bytes of new objects, and
// values of tables, to the log.
func (st *stage) record(c seal.Codec, to *appender) *commitRecord {
	r := &commitRecord{number: to.commit, from: to.at}
	for id, v := range st.views {
		switch {
		case v.exists:
			r.views = append(r.views, st.viewRecord(c, to, v))
		case v.base != nil:
			r.views = append(r.views, viewRecord{header: View{ID: id}, dropped: true})
		}
	}
	for _, p := range st.pairs {
		pair := pairRecord{table: p.Table, key: p.Key}
		if _, there := st.tables[p.Table][p.Key]; p.Value == nil && !there {
			continue
		}
		if p.Value != nil {
			pair.value = p.value(c, to)
		}
		r.pairs = append(r.pairs, pair)
	}
	return r
}

func (st *stage) viewRecord(c seal.Codec, to *appender, v *stagedView) viewRecord {
	r := viewRecord{header: v.header, cleared: v.cleared}
	for _, name := range slices.Sorted(maps.Keys(v.members)) {
		o := v.members[name]
		if o == nil {
			r.remove = append(r.remove, name)
			continue
		}
		if b, ok := st.bytes[o.key()]; ok && o.place == (place{}) {
			o.place = to.body(c.Seal(o.at(), b))
		}
		r.put = append(r.put, o)
	}
	return r
}

// value returns the value of a pair, which it appends to the log unless it is small.
func (p *Pair) value(c seal.Codec, to *appender) *value {
	if len(p.Value) <= maxSmall {
		return &value{small: slices.Clone(p.Value)}
	}
	return &value{place: to.body(c.Seal(atPair(p.Table, p.Key), p.Value))}
}

// at is what the record of an object is sealed with: bytes in the wrong place are damage.
func (o *object) at() seal.Place { return o.key().at() }

func (k ObjectKey) at() seal.Place { return seal.At(seal.KindObject, nil, k.append(nil)) }

func atPair(table, key string) seal.Place {
	return seal.At(seal.KindPair, []byte(table), []byte(key))
}

var errMissing = corrupt(errors.New("it is missing"))
