package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Purge removes all views and keys for which keep, or keepKey, is false, and writes the log anew: what was removed is
// overwritten when it returns nil, and so is what was left of damaged and older files. A view that has lost a change is
// removed.
func (s *Store) Purge(keep func(View) bool, keepKey func(Pair) bool) error {
	var b Batch
	err := s.Views(func(v View) error {
		if v.Err != nil || !keep(v) {
			b.Changes = append(b.Changes, Change{ID: v.ID, Op: Drop})
		}
		return nil
	})
	_, keys := s.Contents()
	for _, pair := range keys {
		if !keepKey(pair) {
			b.Pairs = append(b.Pairs, pair)
		}
	}
	if err == nil {
		err = s.Commit(b)
	}
	if err != nil {
		return fmt.Errorf("purge cache: %w", err)
	}
	s.write.Lock()
	s.changed = true
	s.write.Unlock()
	err = s.tidy()
	for _, name := range append([]string{fileDamaged}, bboltFiles...) {
		if exists(s.dir.file(name)) {
			err = errors.Join(err, s.dir.erase(name))
		}
	}
	if err != nil {
		return fmt.Errorf("purge cache: %w", err)
	}
	return nil
}

// Erase overwrites and removes all files of the store in a folder that nobody has open.
func Erase(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			err = errors.Join(err, folder(path).erase(e.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("erase cache: %w", err)
	}
	return nil
}
