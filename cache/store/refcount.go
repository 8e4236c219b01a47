package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

// refcount counts the views that hold an object. It collects what one batch does: which
// memberships came and went, and whose bytes were given. It is written at the end and in
// one go, so that an object may move from one view to another in any order of changes.
type refcount struct {
	codec
	objects, refs, unreferenced *bolt.Bucket
	tx                          *bolt.Tx

	changes map[ObjectKey]*refChange
	// uncertain is set when damage has made a count unknown: all objects are recounted.
	uncertain bool
	// held is set while a Reader is open that may need deleted objects.
	held    func() bool
	maxHeld int64
}

// refChange is what a batch does to one object.
type refChange struct {
	key     []byte // in the file
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
		changes:      map[ObjectKey]*refChange{},
		held:         s.pins.held,
		maxHeld:      s.opts.MaxHeld,
	}
}

func (rc *refcount) of(k ObjectKey) *refChange {
	change := rc.changes[k]
	if change == nil {
		change = &refChange{key: rc.HashKey(seal.KindObject, nil, k.bytes())}
		rc.changes[k] = change
	}
	return change
}

func (rc *refcount) acquire(k ObjectKey) { rc.of(k).delta++ }
func (rc *refcount) release(k ObjectKey) { rc.of(k).delta-- }

func (rc *refcount) offer(k ObjectKey, b []byte) {
	change := rc.of(k)
	change.bytes, change.offered = b, true
}

// size of an object that was offered or is stored.
func (rc *refcount) size(k ObjectKey) (int, error) {
	change := rc.of(k)
	if change.offered {
		return len(change.bytes), nil
	}
	stored, err := rc.stored(change.key)
	if err != nil {
		return 0, err
	}
	if stored == nil {
		return 0, ErrNoObject
	}
	return len(stored), nil
}

// stored returns an object's bytes, or nil if it is not there.
func (rc *refcount) stored(key []byte) ([]byte, error) {
	record := rc.objects.Get(key)
	if record == nil {
		return nil, nil
	}
	return rc.openObject(key, record)
}

// write writes the new counts and what follows from them, neighbours in the file together.
func (rc *refcount) write() error {
	keys := make([]ObjectKey, 0, len(rc.changes))
	for k := range rc.changes {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b ObjectKey) int {
		if c := bytes.Compare(rc.changes[a].key, rc.changes[b].key); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, k := range keys {
		if err := rc.writeOne(k, rc.changes[k]); err != nil {
			return err
		}
	}
	if rc.uncertain {
		return rc.recount()
	}
	return rc.removeUnreferenced()
}

func (rc *refcount) writeOne(k ObjectKey, change *refChange) error {
	if change.delta == 0 && !change.offered {
		return nil
	}
	before, err := rc.count(change.key)
	if err != nil {
		rc.uncertain = true
	}
	count := max(before+change.delta, 0)
	if count > 0 {
		err = rc.keep(k, change)
	} else {
		err = rc.discard(change.key)
	}
	if err != nil {
		return err
	}
	return rc.setCount(change.key, count)
}

// keep stores what was offered, unless the same is there and whole.
func (rc *refcount) keep(k ObjectKey, change *refChange) error {
	if err := rc.unreferenced.Delete(change.key); err != nil || !change.offered {
		return err
	}
	stored, err := rc.stored(change.key)
	if err == nil && stored != nil && bytes.Equal(stored, change.bytes) {
		return nil
	}
	return rc.objects.Put(change.key, rc.Seal(seal.At(seal.KindObject, nil, change.key), k.bytes(), change.bytes))
}

// discard removes an object that no view holds, or notes that it is unreferenced, for
// those who still read it.
func (rc *refcount) discard(key []byte) error {
	record := rc.objects.Get(key)
	if record == nil || !rc.held() {
		return rc.remove(key)
	}
	size := binary.AppendUvarint(nil, uint64(len(record)))
	return rc.unreferenced.Put(key, rc.Seal(seal.At(seal.KindUnreferenced, nil, key), nil, size))
}

func (rc *refcount) remove(key []byte) error {
	return errors.Join(rc.objects.Delete(key), rc.unreferenced.Delete(key))
}

// count returns how many views hold an object.
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
	payload := binary.AppendUvarint(nil, uint64(n))
	record := rc.Seal(seal.At(seal.KindRefs, nil, key), nil, payload)
	if !rc.Encrypts() && bytes.Equal(rc.refs.Get(key), record) {
		return nil
	}
	return rc.refs.Put(key, record)
}

// removeUnreferenced removes what no view holds if nobody reads, or it is too much.
func (rc *refcount) removeUnreferenced() error {
	var keys [][]byte
	var total uint64
	err := rc.unreferenced.ForEach(func(key, record []byte) error {
		_, payload, err := rc.Open(seal.At(seal.KindUnreferenced, nil, key), record)
		r := seal.Fields{Rest: payload}
		if total += r.Uint(); err != nil {
			total = 1 << 62 // unknown: too much
		}
		keys = append(keys, bytes.Clone(key))
		return nil
	})
	if err != nil || rc.held() && total <= uint64(rc.maxHeld) {
		return err
	}
	for _, key := range keys {
		if err := rc.remove(key); err != nil {
			return err
		}
	}
	return nil
}

// recount takes all counts anew from the members of all views, and removes the
// objects that none holds. It follows the removal of a view that was damaged:
// what it held cannot be known. It reads all keys, and no values.
//
// Of another damaged view only what is readable is counted: it must be dropped
// or replaced in any case, and until then says that it is damaged.
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
	return rc.removeUncounted(counts)
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

func (rc *refcount) removeUncounted(counts map[string]int) error {
	var uncounted [][]byte
	for key := range entries(rc.objects) {
		if counts[string(key)] == 0 {
			uncounted = append(uncounted, bytes.Clone(key))
		}
	}
	for key := range entries(rc.unreferenced) {
		uncounted = append(uncounted, bytes.Clone(key))
	}
	for _, key := range uncounted {
		if counts[string(key)] > 0 {
			continue // also noted as unreferenced, by damage
		}
		if err := rc.remove(key); err != nil {
			return err
		}
	}
	return nil
}

// entries are the keys and values of a bucket, valid in its transaction. The
// bucket must not change meanwhile.
func entries(b *bolt.Bucket) func(yield func(key, value []byte) bool) {
	return func(yield func(key, value []byte) bool) {
		c := b.Cursor()
		for key, value := c.First(); key != nil; key, value = c.Next() {
			if !yield(key, value) {
				return
			}
		}
	}
}
