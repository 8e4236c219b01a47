package store

import (
	"bytes"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

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
