package store

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

// Commit applies a batch in one transaction, and returns when it is on disk. After an error
// nothing has changed, in memory and on disk, unless the last sync failed: then the disk may
// have the new state. The batch can be committed again in either case.
//
// An error caused by one change is an *Error that names its view: the others can be committed
// without it.
//
// Commit keeps no reference to the batch.
func (s *Store) Commit(b Batch) error {
	if err := b.validate(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	err := s.update(func(tx *bolt.Tx) error {
		e, err := s.newEdit(tx)
		if err != nil {
			return err
		}
		return e.commit(&b)
	})
	if errors.Is(err, ErrNoObject) {
		err = s.doubt(err)
	}
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// doubt checks all pages after an ErrNoObject: unless the caller is wrong, the object was lost
// with a page.
func (s *Store) doubt(err error) error {
	s.write.Lock() // the pages must not move while they are read
	defer s.write.Unlock()
	if s.closed {
		return ErrClosed
	}
	if damage := checkPages(s.dir.file(fileMain), true); damage != nil {
		return s.marked(&corruption{damage})
	}
	return err
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

// edit applies a batch in a transaction.
type edit struct {
	codec
	tx            *bolt.Tx
	refcount      *refcount
	viewIDs       tally
	viewIDsBefore tally
	tables        *tableEdit      // nil if none is changed
	doubted       map[string]bool // tables whose tally is computed anew if they are changed
}

func (s *Store) newEdit(tx *bolt.Tx) (*edit, error) {
	ids, err := s.codec.viewTally(tx)
	return &edit{codec: s.codec, tx: tx, viewIDs: ids, viewIDsBefore: ids, refcount: s.newRefcount(tx), doubted: s.doubted}, err
}

func (e *edit) commit(b *Batch) error {
	for i := range b.Changes {
		e.offer(&b.Changes[i])
	}
	for i := range b.Changes {
		if err := e.apply(&b.Changes[i]); err != nil {
			return ofView(b.Changes[i].ID, "", err)
		}
	}
	for i := range b.Pairs {
		if err := e.putPair(&b.Pairs[i]); err != nil {
			return err
		}
	}
	if e.viewIDs != e.viewIDsBefore {
		if err := e.putMeta(e.tx, keyViews, e.viewIDs.append(nil)); err != nil {
			return err
		}
	}
	if err := e.putTables(); err != nil {
		return err
	}
	return e.refcount.write()
}

// offer makes the bytes in a change known to the other changes of the batch.
func (e *edit) offer(c *Change) {
	for i := range c.Put {
		if o := &c.Put[i]; o.Bytes != nil {
			e.refcount.offer(o.key(c.Header.Scope), o.Bytes)
		}
	}
}

func (e *edit) apply(c *Change) error {
	v, err := e.view(e.tx, c.ID)
	missing := errors.Is(err, ErrNotFound)
	switch c.Op {
	case Drop:
		if missing {
			return nil
		}
		return e.drop(c.ID, v, err)
	case MarkStale:
		if err != nil {
			return nil //nolint:nilerr // it is missing, or its damage will be noticed
		}
		v.Stale = true
		return e.putView(&v)
	case Replace:
		return e.replace(c, v, err)
	}
	switch {
	case missing && c.New && c.From == "":
		return e.replace(c, v, err)
	case missing:
		return fmt.Errorf("%w: it is not there", ErrConflict)
	case err != nil:
		return err
	case v.Stale:
		return fmt.Errorf("%w: it is stale", ErrConflict)
	case v.ResourceVersion != c.From && v.ResourceVersion != c.Header.ResourceVersion:
		return fmt.Errorf("%w: it is at version %q, not %q", ErrConflict, v.ResourceVersion, c.From)
	case v.Scope != c.Header.Scope:
		return fmt.Errorf("%w: its scope is %q, not %q", ErrConflict, v.Scope, c.Header.Scope)
	}
	return e.update(c, v, c.Delete)
}

// replace replaces the contents of a view with those of c. Members that stay are not written again.
func (e *edit) replace(c *Change, v View, err error) error {
	if err == nil && v.Scope == c.Header.Scope {
		if members, err := e.members(e.tx, v); err == nil {
			v.Stale = false
			return e.update(c, v, gone(members, c.Put))
		}
	}
	if !errors.Is(err, ErrNotFound) {
		if err := e.drop(c.ID, v, err); err != nil {
			return err
		}
	}
	if err := e.create(c.ID); err != nil {
		return err
	}
	return e.update(c, View{ID: c.ID}, nil)
}

func gone(members []Member, put []Object) []string {
	stay := make(map[string]bool, len(put))
	for i := range put {
		stay[put[i].Name] = true
	}
	var names []string
	for _, m := range members {
		if !stay[m.Name] {
			names = append(names, m.Name)
		}
	}
	return names
}

func (e *edit) create(id ID) error {
	all := e.tx.Bucket(bucketMembers)
	if all.Bucket(id[:]) != nil { // of a view whose header was lost
		if err := all.DeleteBucket(id[:]); err != nil {
			return err
		}
		e.refcount.uncertain = true
	}
	_, err := all.CreateBucket(id[:])
	e.viewIDs.count(+1, string(id[:]))
	return err
}

// drop removes a view. v is its header, unless damage is the error of reading that.
func (e *edit) drop(id ID, v View, damage error) error {
	if damage == nil {
		var members []Member
		if members, damage = e.members(e.tx, v); damage == nil {
			for _, m := range members {
				e.refcount.release(m.key(v.Scope))
			}
		}
	}
	if damage != nil {
		e.refcount.uncertain = true
	}
	e.viewIDs.count(-1, string(id[:]))
	err := e.tx.Bucket(bucketMembers).DeleteBucket(id[:])
	if err != nil && !errors.Is(err, bolt.ErrBucketNotFound) { //nolint:staticcheck // the same value as in bbolt/errors
		return err
	}
	return e.tx.Bucket(bucketViews).Delete(id[:])
}

// update sets and removes members, and writes the header.
func (e *edit) update(c *Change, v View, remove []string) error {
	v.Header = c.Header
	bucket := e.tx.Bucket(bucketMembers).Bucket(c.ID[:])
	if bucket == nil {
		return corrupt(errors.New("its members are missing"))
	}
	m := memberEdit{edit: e, view: &v, bucket: bucket}
	for _, name := range remove {
		if err := m.remove(name); err != nil {
			return ofView(c.ID, name, err)
		}
	}
	for _, p := range e.inKeyOrder(c) {
		if err := m.put(p.key, p.object); err != nil {
			return ofView(c.ID, p.object.Name, err)
		}
	}
	return e.putView(&v)
}

// keyed is an object with the key of its member.
type keyed struct {
	key    []byte
	object *Object
}

// inKeyOrder returns the objects of a change in the order of their members' keys: bbolt appends
// keys that come in order, and else moves all that follow.
func (e *edit) inKeyOrder(c *Change) []keyed {
	put := make([]keyed, len(c.Put))
	for i := range c.Put {
		o := &c.Put[i]
		put[i] = keyed{e.HashKey(seal.KindMember, c.ID[:], []byte(o.Name)), o}
	}
	slices.SortStableFunc(put, func(a, b keyed) int { return bytes.Compare(a.key, b.key) })
	return put
}

func (e *edit) putView(v *View) error {
	return e.tx.Bucket(bucketViews).Put(v.ID[:], e.Seal(seal.At(seal.KindView, nil, v.ID[:]), nil, v.encode()))
}

// memberEdit changes the members of one view, its totals, and the reference counts of its objects.
type memberEdit struct {
	*edit
	view   *View
	bucket *bolt.Bucket
}

// get returns a member, or nil if there is none.
func (e *memberEdit) get(key []byte) (*Member, error) {
	record := e.bucket.Get(key)
	if record == nil {
		return nil, nil
	}
	m, err := e.openMember(e.view.ID, key, record)
	return &m, err
}

func (e *memberEdit) remove(name string) error {
	key := e.HashKey(seal.KindMember, e.view.ID[:], []byte(name))
	old, err := e.get(key)
	if err != nil || old == nil {
		return err
	}
	e.release(old)
	return e.bucket.Delete(key)
}

func (e *memberEdit) put(key []byte, o *Object) error {
	old, err := e.get(key)
	if err != nil {
		return err
	}
	object := o.key(e.view.Scope)
	size := len(o.Bytes)
	if o.Bytes == nil {
		if size, err = e.refcount.size(object); err != nil {
			return err
		}
	}
	now := Member{o.Name, o.ResourceVersion, o.Sum, size}
	if old != nil {
		if *old == now {
			return nil
		}
		e.release(old)
	}
	e.refcount.acquire(object)
	e.view.count(&now, +1)
	return e.bucket.Put(key, e.Seal(seal.At(seal.KindMember, e.view.ID[:], key), []byte(now.Name), now.encode()))
}

func (e *memberEdit) release(m *Member) {
	e.refcount.release(m.key(e.view.Scope))
	e.view.count(m, -1)
}
