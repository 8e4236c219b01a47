// Package table is one table of the store that holds small things: tokens,
// answers, events. It adds what each of them needs: keys that tell nothing, and reads
// that damage does not stop.
//
// The store seals values where there is an encryption key, but never the keys in tables.
// [Table.Key] makes one by a keyed hash; its salt is kept in a table, as a value.
//
// A damaged value is deleted, logged, and as if it had never been. Whoever has written it
// does so again, online.
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

// Store is ordered keys in named tables, on disk.
type Store interface {
	// Get returns a copy of a value, or store.ErrNotFound.
	Get(table, key string) ([]byte, error)
	// Range calls fn for each key from the given one on, in order. A value holds until
	// fn returns. fn may call Get and Put.
	Range(table, from string, fn func(key string, value []byte) error) error
	// Put changes values, all of them or none. Get sees it at once, the disk soon.
	Put(pairs ...store.Pair) error
}

// Table is one of them.
type Table struct {
	store Store
	name  string
	salt  []byte
	log   *slog.Logger
}

// salts is the table that holds the salt of each table, under its name.
const salts = "salts"

// Open returns the table of this name, and makes its salt if there is none. Without the
// salt, what the table holds cannot be found by Key any more.
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

// Key returns the key that stands for parts, whatever they contain.
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

// Get returns a copy of a value. What cannot be read is not there.
func (t *Table) Get(key string) ([]byte, bool) { return get(t, t.name, key) }

// Put keeps a value. That it cannot is logged: nobody has to wait for it, and there is
// nobody to tell.
//
// The salt goes with it. A file that was damaged may have been replaced meanwhile by an
// empty one, and what is written to that must be found after a restart.
func (t *Table) Put(key string, value []byte) {
	t.change(
		store.Pair{Table: t.name, Key: key, Value: value},
		store.Pair{Table: salts, Key: t.name, Value: t.salt},
	)
}

// Delete forgets values.
func (t *Table) Delete(keys ...string) {
	pairs := make([]store.Pair, len(keys))
	for i, key := range keys {
		pairs[i] = store.Pair{Table: t.name, Key: key}
	}
	if len(pairs) > 0 {
		t.change(pairs...)
	}
}

// All calls fn for each value, in order of the keys, but for damaged ones. A value holds
// until fn returns. The error is the store's.
func (t *Table) All(fn func(key string, value []byte)) error {
	for from := ""; ; {
		err := t.store.Range(t.name, from, func(key string, value []byte) error {
			fn(key, value)
			return nil
		})
		var damaged *store.Error
		if !errors.As(err, &damaged) || !skippable(err) || damaged.Name < from {
			if err != nil {
				return fmt.Errorf("read table %s: %w", t.name, err)
			}
			return nil
		}
		t.forget(t.name, damaged.Name, err)
		from = damaged.Name + "\x00" // the next key that there can be
	}
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

// skippable reports whether one value is damaged, and not the whole file.
func skippable(err error) bool {
	return errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrDamaged)
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
