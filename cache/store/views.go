package store

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

// Views calls fn with the header of each view, in order of their IDs, until fn returns an error.
// A view whose header is damaged has Err set: drop it.
func (s *Store) Views(fn func(View) error) error {
	var views []View
	err := s.view(func(tx *bolt.Tx) (err error) {
		views, err = s.codec.views(tx)
		return err
	})
	if err != nil {
		return fmt.Errorf("read views: %w", err)
	}
	for _, v := range views {
		if err := fn(v); err != nil {
			return err
		}
	}
	return nil
}

// Members returns a view's header and all of its members, in order of their names, as of one
// Commit. If one is damaged or missing, it returns only an error.
func (s *Store) Members(id ID) (View, []Member, error) {
	var v View
	var members []Member
	err := s.view(func(tx *bolt.Tx) (err error) {
		if v, err = s.codec.view(tx, id); err == nil {
			members, err = s.codec.members(tx, v)
		}
		return err
	})
	if err != nil {
		return View{}, nil, fmt.Errorf("read members: %w", ofView(id, "", err))
	}
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return v, members, nil
}

// views returns all headers. A damaged one has Err set; a missing one is a *corruption, because
// it is not known which.
func (c codec) views(tx *bolt.Tx) ([]View, error) {
	want, err := c.viewTally(tx)
	if err != nil {
		return nil, err
	}
	var views []View
	var found tally
	err = tx.Bucket(bucketViews).ForEach(func(key, record []byte) error {
		if len(key) != len(ID{}) {
			return &corruption{fmt.Sprintf("a view has an ID of %d bytes", len(key))}
		}
		v, err := c.openView(ID(key), record)
		if err != nil {
			v = View{ID: ID(key), Err: ofView(ID(key), "", err)}
		}
		found.count(+1, string(key))
		views = append(views, v)
		return nil
	})
	if err == nil && found != want {
		err = &corruption{fmt.Sprintf("%d views are left of %d", found.n, want.n)}
	}
	return views, err
}

// viewTally returns the tally of the views' IDs: it shows that one is missing that was not dropped.
func (c codec) viewTally(tx *bolt.Tx) (tally, error) {
	payload, err := c.meta(tx, keyViews)
	r := seal.Fields{Rest: payload}
	t := readTally(&r)
	if err = cmp.Or(err, r.Err); err != nil {
		return tally{}, &corruption{fmt.Sprintf("the number of views: %v", err)}
	}
	return t, nil
}

func (c codec) openView(id ID, record []byte) (View, error) {
	_, payload, err := c.Open(seal.At(seal.KindView, nil, id[:]), record)
	if err != nil {
		return View{}, err
	}
	return decodeView(id, payload)
}

// view returns one header, or ErrNotFound.
func (c codec) view(tx *bolt.Tx, id ID) (View, error) {
	record := tx.Bucket(bucketViews).Get(id[:])
	if record == nil {
		return View{}, ErrNotFound
	}
	return c.openView(id, record)
}

// members returns the members of a view, in order of their names only if these are not hashed,
// or an error if they are not all that the header lists.
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

// shown returns a member's key in a form for people.
func (c codec) shown(key []byte) string {
	if c.Encrypts() {
		return fmt.Sprintf("with hidden name %x", key)
	}
	return string(key)
}

// shownObject returns an object's key in a form for people.
func (c codec) shownObject(key []byte) string {
	if parts := bytes.Split(key, []byte{0}); !c.Encrypts() && len(parts) > 1 {
		return string(parts[1])
	}
	return fmt.Sprintf("with key %x", key)
}
