package store

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
)

// Check reads all of the store, and returns all errors that it finds: damage, objects whose bytes do
// not have their sum, and files that do not have the state that is read. Commits wait meanwhile. Only
// tests call it.
func (s *Store) Check() error {
	s.write.Lock()
	defer s.write.Unlock()
	if s.closed {
		return ErrClosed
	}
	wrong := []error{s.checkFiles()}
	for _, id := range s.contents.ids() {
		v := s.contents.views[id]
		wrong = append(wrong, v.Err)
		for _, o := range v.members {
			wrong = append(wrong, ofView(id, o.name, s.checkObject(o)))
		}
	}
	for name := range s.contents.tables {
		wrong = append(wrong, s.CheckTable(name))
	}
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("check cache: %w", err)
	}
	return nil
}

func (s *Store) checkObject(o *object) error {
	r := s.NewReader(ID{}, o.scope)
	defer r.Close()
	_, err := r.Read([]Member{o.member()}, func(read Object) error {
		if SumOf(read.Bytes) != o.sum {
			s.damaged(o.key(), o.place)
			return corrupt(errors.New("its content does not match its key"))
		}
		return nil
	})
	return err
}

// checkFiles reads the files as Open does: with the index, and without it.
func (s *Store) checkFiles() error {
	for _, withIndex := range []bool{true, false} {
		again := &Store{codec: s.codec, dir: s.dir, logger: slog.New(slog.DiscardHandler), readOnly: errReadBack, contents: newContents(), log: s.log, index: s.index}
		if !withIndex {
			again.index.file = nil
		}
		l := loader{Store: again}
		if err := errors.Join(l.replay(), l.lost); err != nil {
			return err
		}
		again.contents.forgetUnused(true)
		if err := s.contents.differs(again.contents); err != nil {
			return fmt.Errorf("%w (with the index: %v)", err, withIndex)
		}
	}
	return nil
}

var errReadBack = errors.New("it is only read")

// differs returns how other differs from c.
func (c *contents) differs(other *contents) error {
	if !slices.Equal(c.ids(), other.ids()) {
		return corrupt(fmt.Errorf("the files have views %v, not %v", other.ids(), c.ids()))
	}
	for id, v := range c.views {
		is := other.views[id]
		if is.ResourceVersion != v.ResourceVersion || is.Stale != v.Stale || is.Err != nil || !slices.Equal(is.sorted(), v.sorted()) {
			return ofView(id, "", corrupt(fmt.Errorf("the files have it at %q with %d members, not at %q with %d (%w)", is.ResourceVersion, is.Members, v.ResourceVersion, v.Members, is.Err)))
		}
		for name, o := range v.members {
			if is.members[name].views != o.views || is.members[name].place != o.place {
				return ofView(id, name, corrupt(fmt.Errorf("the files have it %d times, not %d", is.members[name].views, o.views)))
			}
		}
	}
	for name, table := range c.tables {
		if there := other.tables[name]; !maps.EqualFunc(table, there, func(a, b value) bool { return a.place == b.place && bytes.Equal(a.small, b.small) }) {
			return &Error{Table: name, Err: corrupt(fmt.Errorf("the files have %d values, not %d", len(there), len(table)))}
		}
	}
	return nil
}
