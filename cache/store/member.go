package store

import (
	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

// memberEdit changes the members of one view, keeping its totals and the count
// of its objects right.
type memberEdit struct {
	*edit
	view   *View
	bucket *bolt.Bucket
}

// old returns a member as it is, and whether there is one.
func (e *memberEdit) old(key []byte) (m Member, ok bool, err error) {
	record := e.bucket.Get(key)
	if record == nil {
		return Member{}, false, nil
	}
	m, err = e.openMember(e.view.ID, key, record)
	return m, err == nil, err
}

func (e *memberEdit) remove(name string) error {
	key := e.HashKey(seal.KindMember, e.view.ID[:], []byte(name))
	old, ok, err := e.old(key)
	if err != nil || !ok {
		return err
	}
	e.forget(&old)
	return e.bucket.Delete(key)
}

func (e *memberEdit) put(key []byte, o *Object) error {
	old, ok, err := e.old(key)
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
	if ok && old == now {
		return nil
	}
	if ok {
		e.forget(&old)
	}
	e.refcount.acquire(object)
	e.view.count(&now, +1)
	return e.bucket.Put(key, e.Seal(seal.At(seal.KindMember, e.view.ID[:], key), []byte(now.Name), now.encode()))
}

func (e *memberEdit) forget(m *Member) {
	e.refcount.release(m.key(e.view.Scope))
	e.view.count(m, -1)
}
