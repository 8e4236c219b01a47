package store

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

// Views calls fn for each view, in order of their IDs, with its header only. A
// view whose header is damaged has Err set; drop it. An error of fn ends it.
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

// Members returns a view's header and all of its members, in order of their
// names, as of one Commit. It never returns some of them: an error is all there
// is if one is damaged or missing.
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

// object returns an object's bytes, valid in the transaction, or ErrNotFound.
func (c codec) object(tx *bolt.Tx, k ObjectKey) ([]byte, error) {
	key := c.HashKey(seal.KindObject, nil, k.bytes())
	record := tx.Bucket(bucketObjects).Get(key)
	if record == nil {
		return nil, ErrNotFound
	}
	return c.openObject(key, record)
}

// Get returns a copy of a table's value for key, or ErrNotFound.
func (s *Store) Get(table, key string) ([]byte, error) {
	var value []byte
	err := s.view(func(tx *bolt.Tx) error {
		var record []byte
		if records := tx.Bucket(bucketTables).Bucket([]byte(table)); records != nil {
			record = records.Get([]byte(key))
		}
		if record == nil {
			return ErrNotFound
		}
		_, payload, err := s.codec.Open(seal.At(seal.KindPair, []byte(table), []byte(key)), record)
		value = append([]byte{}, payload...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read table: %w", &Error{Table: table, Name: key, Err: err})
	}
	return value, nil
}

// rangeChunk is how many bytes Range reads in one transaction, about.
const rangeChunk = 256 << 10

// Range calls fn for each key of a table from the given one on, in order; a
// table that is not there has none. What is committed meanwhile may be seen or
// not. A damaged value ends it with an *Error that names its key: delete that,
// and go on. So does an error of fn. Unlike with views, a key that damage has
// removed is not noticed here: CheckTable does.
func (s *Store) Range(table, from string, fn func(key string, value []byte) error) error {
	for next := []byte(from); next != nil; {
		var chunk []Pair
		var damage error
		err := s.view(func(tx *bolt.Tx) error {
			chunk, next, damage = s.codec.chunk(tx, table, next)
			return nil
		})
		if err != nil {
			return fmt.Errorf("read table %s: %w", table, err)
		}
		for _, p := range chunk {
			if err := fn(p.Key, p.Value); err != nil {
				return err
			}
		}
		if damage != nil {
			return fmt.Errorf("read table: %w", damage)
		}
	}
	return nil
}

// chunk returns some pairs, and the key of the next one, nil if there is none.
func (c codec) chunk(tx *bolt.Tx, table string, from []byte) (chunk []Pair, next []byte, damage error) {
	records := tx.Bucket(bucketTables).Bucket([]byte(table))
	if records == nil {
		return nil, nil, nil
	}
	cursor := records.Cursor()
	size := 0
	for key, record := cursor.Seek(from); key != nil; key, record = cursor.Next() {
		if size >= rangeChunk {
			return chunk, bytes.Clone(key), nil
		}
		_, value, err := c.Open(seal.At(seal.KindPair, []byte(table), key), record)
		if err != nil {
			return chunk, nil, &Error{Table: table, Name: string(key), Err: err}
		}
		size += len(key) + len(value)
		chunk = append(chunk, Pair{table, string(key), append([]byte{}, value...)})
	}
	return chunk, nil, nil
}
