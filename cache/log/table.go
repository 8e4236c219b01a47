package log

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Table is a table whose rows the log itself has in memory, without the values: of tokens, answers that are
// repeated, Events that wait. Keys are short. It is safe for concurrent use.
type Table struct {
	log  *Log
	name string
}

// value is a value of a Table: a body, or the value itself if it is small.
type value struct {
	sum   Sum
	small []byte // nil: it is a body
}

// maxSmall is the size up to which values stand in the records of commits, and in memory, in bytes.
const maxSmall = 64

const (
	tableSalt = "" // no other table has this name
	keySalt   = "salt"
)

// Table returns the table of a name, which is not empty. It has no rows before Open.
func (l *Log) Table(name string) *Table { return &Table{l, name} }

// Key returns a hash of parts, which may contain anything, and may be secret: it is their HMAC with a salt, a random number
// that is as old as the file. It changes when another file is read, and only then.
func (t *Table) Key(parts ...string) string {
	t.log.mu.RLock()
	salt := t.log.tables[tableSalt][keySalt].small
	t.log.mu.RUnlock()
	h := hmac.New(sha256.New, salt)
	var length [8]byte
	for _, part := range append([]string{t.name}, parts...) {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Get returns a value, which nobody may change. A damaged one is deleted, and one that cannot be read counts as missing.
func (t *Table) Get(key string) (value []byte, ok bool) {
	value, ok, err := t.get(key)
	if err != nil {
		t.log.log.Warn("a value of the cache cannot be read: it counts as missing", "table", t.name, "err", err)
	}
	return value, ok
}

// get returns no error for a value that is missing or damaged.
func (t *Table) get(key string) (b []byte, ok bool, err error) {
	t.log.mu.RLock()
	v, ok := t.log.tables[t.name][key]
	t.log.mu.RUnlock()
	if !ok || v.small != nil {
		return v.small, ok, nil
	}
	b, err = t.log.Body(v.sum)
	if errors.Is(err, ErrCorrupt) {
		t.log.log.Warn("a value of the cache is damaged: it is forgotten", "table", t.name, "err", err)
		t.Delete(key)
		err = nil
	}
	return b, b != nil, err
}

// Put sets a value, which the caller must not change afterwards. It is on disk within about a second.
func (t *Table) Put(key string, b []byte) {
	r := Row{Key: key}
	v := value{}
	if len(b) <= maxSmall {
		v.small = append([]byte{}, b...)
		r.Value = v.small
	} else {
		v.sum = SumOf(b)
		r.Bodies = []Body{{v.sum, b}}
	}
	t.change(&Change{Table: t.name, own: true, Put: []Row{r}}, func(rows map[string]value) { rows[key] = v })
}

// Delete deletes values.
func (t *Table) Delete(keys ...string) {
	if len(keys) > 0 {
		t.change(&Change{Table: t.name, own: true, Delete: slices.Clone(keys)}, func(rows map[string]value) {
			for _, key := range keys {
				delete(rows, key)
			}
		})
	}
}

func (t *Table) change(c *Change, change func(rows map[string]value)) {
	l := t.log
	l.mu.Lock()
	if l.tables[t.name] == nil {
		l.tables[t.name] = map[string]value{}
	}
	change(l.tables[t.name])
	l.next.add(c) // tables are never given up
	l.mu.Unlock()
	wake(l.dirty)
}

// Keys returns all keys, in order.
func (t *Table) Keys() []string {
	t.log.mu.RLock()
	defer t.log.mu.RUnlock()
	return slices.Sorted(maps.Keys(t.log.tables[t.name]))
}

// Load calls fn for each value in the order of keys. Those for which it returns an error are deleted. The error is one of
// reading the file.
func (t *Table) Load(fn func(key string, value []byte) error) error {
	var unreadable []string
	for _, key := range t.Keys() {
		b, ok, err := t.get(key)
		if err != nil {
			return fmt.Errorf("load table %s: %w", t.name, err)
		}
		if ok && fn(key, b) != nil {
			unreadable = append(unreadable, key)
		}
	}
	t.Delete(unreadable...)
	return nil
}

// ownRows returns the rows of a table as a change.
func ownRows(name string, rows map[string]value) Change {
	c := Change{Table: name, own: true}
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		c.Put = append(c.Put, rows[key].row(key))
	}
	return c
}

func (v value) row(key string) Row {
	if v.small != nil {
		return Row{Key: key, Value: v.small}
	}
	return Row{Key: key, Bodies: []Body{{Sum: v.sum}}}
}

// applyOwn applies a change of a table, without reading bodies.
func applyOwn(tables map[string]map[string]value, c *Change) {
	rows := tables[c.Table]
	if rows == nil || c.Clear {
		rows = map[string]value{}
		tables[c.Table] = rows
	}
	for _, key := range c.Delete {
		delete(rows, key)
	}
	for _, r := range c.Put {
		if len(r.Bodies) > 0 {
			rows[r.Key] = value{sum: r.Bodies[0].Sum}
		} else {
			rows[r.Key] = value{small: append([]byte{}, r.Value...)}
		}
	}
}
