// Package tabletest has a store of tables in memory, for tests.
package tabletest

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/edgehub-io/edgehub/cache/store"
)

// Store is a table.Store. The zero value is empty. It outlives what is opened on it, as
// a disk does.
type Store struct {
	mu      sync.Mutex
	values  map[[2]string][]byte
	damaged map[[2]string]bool
	err     error
	putErr  error
}

// Damage makes a value one that cannot be read.
func (t *Store) Damage(table, key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.damaged == nil {
		t.damaged = make(map[[2]string]bool)
	}
	t.damaged[[2]string{table, key}] = true
}

// Fail makes all that follows return err, until it is called with nil.
func (t *Store) Fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
}

// FailPuts is like Fail, but reads go on.
func (t *Store) FailPuts(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.putErr = err
}

// Clear makes the table empty, as where its file was damaged and replaced.
func (t *Store) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.values)
	clear(t.damaged)
}

// Keys is table.Store's. Like a disk's, they are in memory.
func (t *Store) Keys(table string) ([]string, error) { return t.KeysIn(table), nil }

// KeysIn returns the keys of a table, in order.
func (t *Store) KeysIn(table string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var keys []string
	for k := range t.values {
		if k[0] == table {
			keys = append(keys, k[1])
		}
	}
	slices.Sort(keys)
	return keys
}

// Holds reports whether any key or value contains text.
func (t *Store) Holds(text string) (inKeys, inValues bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, v := range maps.All(t.values) {
		inKeys = inKeys || bytes.Contains([]byte(k[1]), []byte(text))
		inValues = inValues || bytes.Contains(v, []byte(text))
	}
	return inKeys, inValues
}

// Get is table.Store's.
func (t *Store) Get(table, key string) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := [2]string{table, key}
	v, ok := t.values[k]
	switch {
	case t.err != nil:
		return nil, t.err
	case !ok:
		return nil, store.ErrNotFound
	case t.damaged[k]:
		return nil, &store.Error{Table: table, Name: key, Err: store.ErrCorrupt}
	}
	return bytes.Clone(v), nil
}

// Put is table.Store's.
func (t *Store) Put(pairs ...store.Pair) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := cmp.Or(t.err, t.putErr); err != nil {
		return err
	}
	if t.values == nil {
		t.values = make(map[[2]string][]byte)
	}
	for _, p := range pairs {
		k := [2]string{p.Table, p.Key}
		delete(t.damaged, k)
		delete(t.values, k)
		if p.Value != nil {
			t.values[k] = bytes.Clone(p.Value)
		}
	}
	return nil
}
