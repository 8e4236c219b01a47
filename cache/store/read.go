package store

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// reading runs fn while contents do not change. fn must not wait.
func (s *Store) reading(fn func(*contents) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.contents == nil {
		return ErrClosed
	}
	return fn(s.contents)
}

// Views calls fn with the header of each view, in order of their IDs, until fn returns an error.
// A view that has lost a change has Err set: drop it.
func (s *Store) Views(fn func(View) error) error {
	var views []View
	err := s.reading(func(c *contents) error {
		for _, id := range c.ids() {
			v := c.views[id].View
			if v.Err != nil {
				v = View{ID: id, Err: v.Err}
			}
			views = append(views, v)
		}
		return nil
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

// Contents returns the IDs of all views, and the keys of all tables, as pairs that delete them. A closed store
// has none.
func (s *Store) Contents() (views []ID, keys []Pair) {
	_ = s.reading(func(c *contents) error {
		views = c.ids()
		for table, values := range c.tables {
			for key := range values {
				keys = append(keys, Pair{Table: table, Key: key})
			}
		}
		return nil
	})
	return views, keys
}

// HasView reports whether there is a view. It does no I/O.
func (s *Store) HasView(id ID) (ok bool) {
	_ = s.reading(func(c *contents) error {
		ok = c.views[id] != nil
		return nil
	})
	return ok
}

// Has reports whether a table has a key.
func (s *Store) Has(table, key string) (ok bool) {
	_ = s.reading(func(c *contents) error {
		_, ok = c.tables[table][key]
		return nil
	})
	return ok
}

// Members returns a view's header and all of its members, in order of their names, as of one
// Commit. If the view has lost a change, it returns only an error.
func (s *Store) Members(id ID) (View, []Member, error) {
	var v View
	var members []Member
	err := s.reading(func(c *contents) error {
		stored := c.views[id]
		if stored == nil {
			return ErrNotFound
		}
		if stored.Err != nil {
			return stored.Err
		}
		v, members = stored.View, stored.sorted()
		return nil
	})
	if err != nil {
		return View{}, nil, fmt.Errorf("read members: %w", ofView(id, "", err))
	}
	return v, members, nil
}

// Get returns a copy of a table's value for key, or ErrNotFound.
func (s *Store) Get(table, key string) ([]byte, error) {
	b, err := s.get(table, key)
	if err != nil {
		return nil, fmt.Errorf("read table: %w", &Error{Table: table, Name: key, Err: err})
	}
	return b, nil
}

func (s *Store) get(table, key string) ([]byte, error) {
	s.file.RLock() // the log is not replaced
	defer s.file.RUnlock()
	var v value
	err := s.reading(func(c *contents) error {
		var ok bool
		if v, ok = c.tables[table][key]; !ok {
			return ErrNotFound
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s.value(table, key, v)
}

// value reads a value. s.file must be held.
func (s *Store) value(table, key string, v value) ([]byte, error) {
	if v.size == 0 {
		return append([]byte{}, v.small...), nil
	}
	record := make([]byte, v.size)
	if err := s.log.read(record, v.at); err != nil {
		return nil, err
	}
	payload, err := s.codec.Open(atPair(table, key), record)
	if err != nil {
		s.opts.Damaged(&Error{Table: table, Name: key, Err: err})
	}
	return payload, err
}

// Keys returns the keys of a table, in order; a missing table has none.
func (s *Store) Keys(table string) (keys []string, err error) {
	err = s.reading(func(c *contents) error {
		keys = slices.Sorted(maps.Keys(c.tables[table]))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read table %s: %w", table, err)
	}
	return keys, nil
}

// CheckTable returns an error that is ErrCorrupt if the table is not as the last Commit left it: a
// value is damaged, or a commit was lost that may have changed the table. The table can still be
// used, and after the next Commit that changes it, it counts as complete. So a caller that must know
// of losses calls CheckTable first, and writes the consequences in that Commit.
func (s *Store) CheckTable(name string) error {
	keys, err := s.Keys(name)
	for _, key := range keys {
		if _, damage := s.Get(name, key); !errors.Is(damage, ErrNotFound) { // else it was deleted meanwhile
			err = cmp.Or(err, damage)
		}
	}
	if err == nil {
		err = s.reading(func(*contents) error {
			if s.settled != nil && !s.settled[name] {
				return &Error{Table: name, Err: corrupt(errLostCommit)}
			}
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("check table: %w", err)
	}
	return nil
}

// Stats is the size of a store.
type Stats struct {
	FileBytes    int64 // of its files
	WrittenBytes int64 // to its files since it was opened, for commits, and when the log was written anew and the old one overwritten
}

// Stats returns the size of the store.
func (s *Store) Stats() (Stats, error) {
	var stats Stats
	err := s.reading(func(*contents) error {
		stats.FileBytes, stats.WrittenBytes = s.size.Load(), s.written.Load()
		return nil
	})
	return stats, err
}
