package store

import (
	"bytes"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

// views returns all headers. One that is damaged has Err set; one that is
// missing is a *corruption, for nobody knows which.
func (c codec) views(tx *bolt.Tx) ([]View, error) {
	want, err := c.viewCount(tx)
	if err != nil {
		return nil, &corruption{fmt.Sprintf("the number of views: %v", err)}
	}
	var views []View
	var found viewCount
	err = tx.Bucket(bucketViews).ForEach(func(key, record []byte) error {
		if len(key) != len(ID{}) {
			return &corruption{fmt.Sprintf("a view has an ID of %d bytes", len(key))}
		}
		v, err := c.openView(ID(key), record)
		if err != nil {
			v = View{ID: ID(key), Err: err}
		}
		found.add(v.ID)
		views = append(views, v)
		return nil
	})
	if err == nil && found != want {
		err = &corruption{fmt.Sprintf("%d views are left of %d", found.views, want.views)}
	}
	return views, err
}

func (c codec) openView(id ID, record []byte) (View, error) {
	_, payload, err := c.Open(seal.At(seal.KindView, nil, id[:]), record)
	if err != nil {
		return View{}, ofView(id, "", err)
	}
	v, err := decodeView(id, payload)
	return v, ofView(id, "", err)
}

// view returns one header, or ErrNotFound.
func (c codec) view(tx *bolt.Tx, id ID) (View, error) {
	record := tx.Bucket(bucketViews).Get(id[:])
	if record == nil {
		return View{}, ofView(id, "", ErrNotFound)
	}
	return c.openView(id, record)
}

// members returns what a view holds, sorted only if the names are not hidden,
// or an error if it is not all that the header says.
func (c codec) members(tx *bolt.Tx, v View) ([]Member, error) {
	bucket := tx.Bucket(bucketMembers).Bucket(v.ID[:])
	if bucket == nil {
		return nil, &corruption{ofView(v.ID, "", corrupt(errors.New("its members are missing")))}
	}
	members := make([]Member, 0, min(v.Members, 1<<20))
	found := View{ID: v.ID}
	err := bucket.ForEach(func(key, record []byte) error {
		m, err := c.openMember(v.ID, key, record)
		if err != nil {
			return err
		}
		found.count(&m, +1)
		members = append(members, m)
		return nil
	})
	if err == nil && (found.Members != v.Members || found.Bytes != v.Bytes || found.digest != v.digest) {
		err = &corruption{ofView(v.ID, "", corrupt(fmt.Errorf("%d members are left of %d", found.Members, v.Members)))}
	}
	return members, err
}

func (c codec) openMember(id ID, key, record []byte) (Member, error) {
	name, payload, err := c.Open(seal.At(seal.KindMember, id[:], key), record)
	if err != nil {
		return Member{}, ofView(id, c.shown(key), err)
	}
	m, err := decodeMember(name, payload)
	return m, ofView(id, string(name), err)
}

// shown is what a key tells a person, if anything.
func (c codec) shown(key []byte) string {
	if c.Encrypts() {
		return fmt.Sprintf("with hidden name %x", key)
	}
	return string(key)
}

// shownObject is shown for the key of an object.
func (c codec) shownObject(key []byte) string {
	if parts := bytes.Split(key, []byte{0}); !c.Encrypts() && len(parts) > 1 {
		return string(parts[1])
	}
	return fmt.Sprintf("with key %x", key)
}
