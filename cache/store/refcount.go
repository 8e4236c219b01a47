package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"iter"
	"maps"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

// refcount updates the reference counts of objects: the number of views that have each. It
// collects the changes of one batch, members that came or went and bytes that were given, and
// writes them at the end. So an object may move from one view to another in any order of
// changes.
type refcount struct {
	codec
	objects, refs, unreferenced *bolt.Bucket
	tx                          *bolt.Tx

	changes map[string]*refChange // by the object's key in the file
	// uncertain is set if damage has made a count unknown: all objects are then recounted.
	uncertain bool
	// held reports whether a Reader is open, which may need removed objects.
	held    func() bool
	maxHeld int64
}

// refChange is the change of one object.
type refChange struct {
	name    []byte // ObjectKey.bytes
	delta   int    // of the number of views
	bytes   []byte // if offered
	offered bool
}

func (s *Store) newRefcount(tx *bolt.Tx) *refcount {
	return &refcount{
		codec:        s.codec,
		tx:           tx,
		objects:      tx.Bucket(bucketObjects),
		refs:         tx.Bucket(bucketRefs),
		unreferenced: tx.Bucket(bucketUnreferenced),
		changes:      map[string]*refChange{},
		held:         func() bool { return s.readers.Load() > 0 },
		maxHeld:      s.opts.MaxHeld,
	}
}

func (rc *refcount) of(k ObjectKey) *refChange {
	name := k.bytes()
	key := string(rc.HashKey(seal.KindObject, nil, name))
	if rc.changes[key] == nil {
		rc.changes[key] = &refChange{name: name}
	}
	return rc.changes[key]
}

func (rc *refcount) acquire(k ObjectKey) { rc.of(k).delta++ }
func (rc *refcount) release(k ObjectKey) { rc.of(k).delta-- }

func (rc *refcount) offer(k ObjectKey, b []byte) {
	change := rc.of(k)
	change.bytes, change.offered = b, true
}

// size returns the size of an object that was offered or is stored.
func (rc *refcount) size(k ObjectKey) (int, error) {
	change := rc.of(k)
	if change.offered {
		return len(change.bytes), nil
	}
	stored, err := rc.object(rc.objects, rc.HashKey(seal.KindObject, nil, change.name))
	if errors.Is(err, ErrNotFound) {
		err = ErrNoObject
	}
	return len(stored), err
}

// write applies the changes, in the order of keys in the file.
func (rc *refcount) write() error {
	for _, key := range slices.Sorted(maps.Keys(rc.changes)) {
		if err := rc.writeOne([]byte(key), rc.changes[key]); err != nil {
			return err
		}
	}
	if rc.uncertain {
		return rc.recount()
	}
	return rc.removeUnreferenced()
}

func (rc *refcount) writeOne(key []byte, change *refChange) error {
	if change.delta == 0 && !change.offered {
		return nil
	}
	before, err := rc.count(key)
	if err != nil {
		rc.uncertain = true
	}
	count := max(before+change.delta, 0)
	if count > 0 {
		err = rc.keep(key, change)
	} else {
		err = rc.discard(key)
	}
	if err != nil {
		return err
	}
	return rc.setCount(key, count)
}

// keep stores an offered object, unless it is stored and not damaged.
func (rc *refcount) keep(key []byte, change *refChange) error {
	if err := rc.unreferenced.Delete(key); err != nil || !change.offered {
		return err
	}
	if stored, err := rc.object(rc.objects, key); err == nil && bytes.Equal(stored, change.bytes) {
		return nil
	}
	return rc.objects.Put(key, rc.Seal(seal.At(seal.KindObject, nil, key), change.name, change.bytes))
}

// discard removes an object, or marks it as unreferenced while a Reader is open.
func (rc *refcount) discard(key []byte) error {
	record := rc.objects.Get(key)
	if record == nil || !rc.held() {
		return rc.remove(key)
	}
	size := binary.AppendUvarint(nil, uint64(len(record)))
	return rc.unreferenced.Put(key, rc.Seal(seal.At(seal.KindUnreferenced, nil, key), nil, size))
}

func (rc *refcount) remove(keys ...[]byte) error {
	for _, key := range keys {
		if err := errors.Join(rc.objects.Delete(key), rc.unreferenced.Delete(key)); err != nil {
			return err
		}
	}
	return nil
}

// count returns the number of views that have an object. Only counts above 1 are stored.
func (rc *refcount) count(key []byte) (int, error) {
	if record := rc.refs.Get(key); record != nil {
		_, payload, err := rc.Open(seal.At(seal.KindRefs, nil, key), record)
		r := seal.Fields{Rest: payload}
		return int(r.Uint()), errors.Join(err, r.Err)
	}
	if rc.objects.Get(key) == nil || rc.unreferenced.Get(key) != nil {
		return 0, nil
	}
	return 1, nil
}

func (rc *refcount) setCount(key []byte, n int) error {
	if n < 2 {
		return rc.refs.Delete(key)
	}
	record := rc.Seal(seal.At(seal.KindRefs, nil, key), nil, binary.AppendUvarint(nil, uint64(n)))
	if bytes.Equal(rc.refs.Get(key), record) {
		return nil
	}
	return rc.refs.Put(key, record)
}

// removeUnreferenced removes unreferenced objects if no Reader is open, or they exceed maxHeld.
func (rc *refcount) removeUnreferenced() error {
	var keys [][]byte
	var total uint64
	for key, record := range entries(rc.unreferenced) {
		_, payload, err := rc.Open(seal.At(seal.KindUnreferenced, nil, key), record)
		r := seal.Fields{Rest: payload}
		if total += r.Uint(); err != nil {
			total = 1 << 62 // unknown: count it as too much
		}
		keys = append(keys, bytes.Clone(key))
	}
	if rc.held() && total <= uint64(rc.maxHeld) {
		return nil
	}
	return rc.remove(keys...)
}

// recount counts the members of all views again, and removes objects that are in none. It is
// needed after a damaged view was removed, whose members are unknown. It reads all keys, and no
// objects. Of other damaged views, only readable members count: these views must be dropped
// or replaced in any case, and reading them fails until then.
func (rc *refcount) recount() error {
	counts := map[string]int{}
	views, err := rc.views(rc.tx)
	for _, v := range views {
		if v.Err == nil {
			rc.countMembers(v, counts)
		}
	}
	if err != nil {
		return err
	}
	if err := rc.tx.DeleteBucket(bucketRefs); err != nil {
		return err
	}
	if rc.refs, err = rc.tx.CreateBucket(bucketRefs); err != nil {
		return err
	}
	for key, n := range counts {
		if err := rc.setCount([]byte(key), n); err != nil {
			return err
		}
	}
	var uncounted [][]byte
	for _, bucket := range []*bolt.Bucket{rc.objects, rc.unreferenced} {
		for key := range entries(bucket) {
			if counts[string(key)] == 0 {
				uncounted = append(uncounted, bytes.Clone(key))
			}
		}
	}
	return rc.remove(uncounted...)
}

func (rc *refcount) countMembers(v View, counts map[string]int) {
	bucket := rc.tx.Bucket(bucketMembers).Bucket(v.ID[:])
	if bucket == nil {
		return
	}
	for key, record := range entries(bucket) {
		if m, err := rc.openMember(v.ID, key, record); err == nil {
			counts[string(rc.HashKey(seal.KindObject, nil, m.key(v.Scope).bytes()))]++
		}
	}
}

// entries yields the keys and values of a bucket, which are valid in its transaction. The bucket
// must not be changed meanwhile.
func entries(b *bolt.Bucket) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		c := b.Cursor()
		for key, value := c.First(); key != nil; key, value = c.Next() {
			if !yield(key, value) {
				return
			}
		}
	}
}
