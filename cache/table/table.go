// Package table is a table of the store, for small values: tokens, answers, events. It adds keys
// that reveal nothing, and reads that skip damaged values.
//
// The store can encrypt values, but not the keys of tables. [Table.Key] returns a salted hash as
// key; the salt is a value in another table.
//
// A damaged value is logged and deleted, and counts as missing. Its owner writes it again when it
// is online.
//
// A Table is safe for concurrent use if its Store is.
package table

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"

	"github.com/edgehub-io/edgehub/cache/store"
)

// Store has named tables of ordered keys, on disk.
type Store interface {
	// Get returns a copy of a value, or store.ErrNotFound.
	Get(table, key string) ([]byte, error)
	// Keys returns the keys of a table, in order.
	Keys(table string) ([]string, error)
	// Put changes values, all of them or none. Get returns them at once; they are written to
	// disk soon.
	Put(pairs ...store.Pair) error
}

// Table is a table of a Store.
type Table struct {
	store Store
	name  string
	salt  []byte
	log   *slog.Logger
}

// salts is the table of all salts, by the names of their tables.
const salts = "salts"

// Open returns the table of this name, and creates its salt if there is none. Without the old
// salt, Key does not find the old values.
func Open(s Store, name string, log *slog.Logger) (*Table, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	t := &Table{store: s, name: name, log: log}
	salt, ok := get(t, salts, name)
	if !ok || len(salt) != sha256.Size {
		salt = make([]byte, sha256.Size)
		rand.Read(salt) // never fails
		if err := s.Put(store.Pair{Table: salts, Key: name, Value: salt}); err != nil {
			return nil, fmt.Errorf("keep the salt of table %s: %w", name, err)
		}
	}
	t.salt = salt
	return t, nil
}

// Key returns the hash of parts, which may contain anything.
func (t *Table) Key(parts ...string) string {
	h := hmac.New(sha256.New, t.salt)
	var length [8]byte
	for _, part := range parts {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Get returns a copy of a value. An unreadable value counts as missing.
func (t *Table) Get(key string) ([]byte, bool) { return get(t, t.name, key) }

// Put writes a value, and logs failures, because no caller waits for the disk.
//
// It writes the salt, too: an empty file may have replaced a damaged one, and after a restart the
// value must be found there.
func (t *Table) Put(key string, value []byte) {
	t.change(
		store.Pair{Table: t.name, Key: key, Value: value},
		store.Pair{Table: salts, Key: t.name, Value: t.salt},
	)
}

// Delete deletes values.
func (t *Table) Delete(keys ...string) {
	pairs := make([]store.Pair, len(keys))
	for i, key := range keys {
		pairs[i] = store.Pair{Table: t.name, Key: key}
	}
	if len(pairs) > 0 {
		t.change(pairs...)
	}
}

// All calls fn for each value in the order of keys, except damaged ones. The error is the store's.
func (t *Table) All(fn func(key string, value []byte)) error {
	keys, err := t.store.Keys(t.name)
	if err != nil {
		return fmt.Errorf("read table %s: %w", t.name, err)
	}
	for _, key := range keys {
		switch value, err := t.store.Get(t.name, key); {
		case err == nil:
			fn(key, value)
		case errors.Is(err, store.ErrNotFound): // deleted meanwhile
		case skippable(err):
			t.forget(t.name, key, err)
		default:
			return fmt.Errorf("read table %s: %w", t.name, err)
		}
	}
	return nil
}

// Load is All for values that fn reads into memory: those for which it returns an error are deleted.
func (t *Table) Load(fn func(key string, value []byte) error) error {
	var unreadable []string
	err := t.All(func(key string, value []byte) {
		if fn(key, value) != nil {
			unreadable = append(unreadable, key)
		}
	})
	if err == nil {
		t.Delete(unreadable...)
	}
	return err
}

// get reads the salts, too.
func get(t *Table, name, key string) ([]byte, bool) {
	value, err := t.store.Get(name, key)
	switch {
	case err == nil:
		return value, true
	case errors.Is(err, store.ErrNotFound):
	case skippable(err):
		t.forget(name, key, err)
	default:
		t.log.Warn("a table of the cache cannot be read: what it holds counts as missing", "table", name, "err", err)
	}
	return nil, false
}

// skippable reports whether only one value is damaged, and not the whole file.
func skippable(err error) bool {
	return errors.Is(err, store.ErrCorrupt)
}

func (t *Table) forget(name, key string, err error) {
	t.log.Warn("a value of the cache is damaged: it is forgotten", "table", name, "err", err)
	t.change(store.Pair{Table: name, Key: key})
}

func (t *Table) change(pairs ...store.Pair) {
	if err := t.store.Put(pairs...); err != nil {
		t.log.Warn("a table of the cache cannot be written: a restart of the hub loses the change", "table", pairs[0].Table, "err", err)
	}
}
