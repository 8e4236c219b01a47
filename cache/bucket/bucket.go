// Package bucket is a view of one table of the store that holds small things: tokens,
// answers, events. It adds what each of them needs: keys that tell nothing, and reads
// that damage does not stop.
//
// The store seals values where there is an encryption key, but never the keys in tables.
// [Bucket.Key] makes one by a keyed hash; its salt is kept in a table, as a value.
//
// A damaged value is deleted, logged, and as if it had never been. Whoever has written it
// does so again, online.
//
// A Bucket is safe for concurrent use if its Table is.
package bucket

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

// Table is ordered keys in named buckets, on disk.
type Table interface {
	// Get returns a copy of a value, or store.ErrNotFound.
	Get(bucket, key string) ([]byte, error)
	// Range calls fn for each key from the given one on, in order. A value holds until
	// fn returns. fn may call Get and Put.
	Range(bucket, from string, fn func(key string, value []byte) error) error
	// Put changes values, all of them or none. Get sees it at once, the disk soon.
	Put(pairs ...store.Pair) error
}

// Bucket is one table.
type Bucket struct {
	table Table
	name  string
	salt  []byte
	log   *slog.Logger
}

// salts is the table that holds the salt of each bucket, under its name.
const salts = "salts"

// Open returns the bucket of this name, and makes its salt if there is none. Without the
// salt, what the bucket holds cannot be found by Key any more.
func Open(t Table, name string, log *slog.Logger) (*Bucket, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	b := &Bucket{table: t, name: name, log: log}
	salt, ok := get(b, salts, name)
	if !ok || len(salt) != sha256.Size {
		salt = make([]byte, sha256.Size)
		rand.Read(salt) // never fails
		if err := t.Put(store.Pair{Bucket: salts, Key: name, Value: salt}); err != nil {
			return nil, fmt.Errorf("keep the salt of table %s: %w", name, err)
		}
	}
	b.salt = salt
	return b, nil
}

// Key returns the key that stands for parts, whatever they contain.
func (b *Bucket) Key(parts ...string) string {
	h := hmac.New(sha256.New, b.salt)
	var length [8]byte
	for _, part := range parts {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Get returns a copy of a value. What cannot be read is not there.
func (b *Bucket) Get(key string) ([]byte, bool) { return get(b, b.name, key) }

// Put keeps a value. That it cannot is logged: nobody has to wait for it, and there is
// nobody to tell.
//
// The salt goes with it. A file that was damaged may have been replaced meanwhile by an
// empty one, and what is written to that must be found after a restart.
func (b *Bucket) Put(key string, value []byte) {
	b.change(
		store.Pair{Bucket: b.name, Key: key, Value: value},
		store.Pair{Bucket: salts, Key: b.name, Value: b.salt},
	)
}

// Delete forgets values.
func (b *Bucket) Delete(keys ...string) {
	pairs := make([]store.Pair, len(keys))
	for i, key := range keys {
		pairs[i] = store.Pair{Bucket: b.name, Key: key}
	}
	if len(pairs) > 0 {
		b.change(pairs...)
	}
}

// All calls fn for each value, in order of the keys, but for damaged ones. A value holds
// until fn returns. The error is the store's.
func (b *Bucket) All(fn func(key string, value []byte)) error {
	for from := ""; ; {
		err := b.table.Range(b.name, from, func(key string, value []byte) error {
			fn(key, value)
			return nil
		})
		var damaged *store.Error
		if !errors.As(err, &damaged) || !skippable(err) || damaged.Name < from {
			if err != nil {
				return fmt.Errorf("read table %s: %w", b.name, err)
			}
			return nil
		}
		b.forget(b.name, damaged.Name, err)
		from = damaged.Name + "\x00" // the next key that there can be
	}
}

// get reads the salts, too.
func get(b *Bucket, bucket, key string) ([]byte, bool) {
	value, err := b.table.Get(bucket, key)
	switch {
	case err == nil:
		return value, true
	case errors.Is(err, store.ErrNotFound):
	case skippable(err):
		b.forget(bucket, key, err)
	default:
		b.log.Warn("a table of the cache cannot be read: what it holds counts as missing", "table", bucket, "err", err)
	}
	return nil, false
}

// skippable reports whether one value is damaged, and not the whole file.
func skippable(err error) bool {
	return errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrDamaged)
}

func (b *Bucket) forget(bucket, key string, err error) {
	b.log.Warn("a value of the cache is damaged: it is forgotten", "table", bucket, "err", err)
	b.change(store.Pair{Bucket: bucket, Key: key})
}

func (b *Bucket) change(pairs ...store.Pair) {
	if err := b.table.Put(pairs...); err != nil {
		b.log.Warn("a table of the cache cannot be written: a restart of the hub loses the change", "table", pairs[0].Bucket, "err", err)
	}
}
