package store

import (
	"bytes"

	bolt "go.etcd.io/bbolt"
)

// recount takes all counts anew from the members of all views, and removes the
// objects that none holds. It follows the removal of a view that was damaged:
// what it held cannot be known. It reads all keys, and no values.
//
// Of another damaged view only what is readable is counted: it must be dropped
// or replaced in any case, and until then says that it is damaged.
func (l *ledger) recount() error {
	counts := map[string]int{}
	views, err := l.views(l.tx)
	for _, v := range views {
		if v.Err == nil {
			l.countMembers(v, counts)
		}
	}
	if err != nil {
		return err
	}
	if err := l.tx.DeleteBucket(bucketRefs); err != nil {
		return err
	}
	if l.refs, err = l.tx.CreateBucket(bucketRefs); err != nil {
		return err
	}
	for key, n := range counts {
		if err := l.setCount([]byte(key), n); err != nil {
			return err
		}
	}
	return l.removeUncounted(counts)
}

func (l *ledger) countMembers(v View, counts map[string]int) {
	bucket := l.tx.Bucket(bucketMembers).Bucket(v.ID[:])
	if bucket == nil {
		return
	}
	for key, record := range entries(bucket) {
		if m, err := l.openMember(v.ID, key, record); err == nil {
			counts[string(l.hide(kindObject, nil, m.key(v.Scope).bytes()))]++
		}
	}
}

func (l *ledger) removeUncounted(counts map[string]int) error {
	var uncounted [][]byte
	for key := range entries(l.objects) {
		if counts[string(key)] == 0 {
			uncounted = append(uncounted, bytes.Clone(key))
		}
	}
	for key := range entries(l.trash) {
		uncounted = append(uncounted, bytes.Clone(key))
	}
	for _, key := range uncounted {
		if counts[string(key)] > 0 {
			continue // also in the trash, by damage
		}
		if err := l.remove(key); err != nil {
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
