package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store/mapping"
)

// overwriteStep is how many bytes of a file are looked at between two commits.
const overwriteStep = 4 << 20

// overwriteFree overwrites with zeros the pages that are free when it is called. It returns
// early if ctx ends. Only one call may run at a time.
func (s *Store) overwriteFree(ctx context.Context) error {
	for at, more := int64(0), true; more && ctx.Err() == nil; {
		var err error
		if at, more, err = s.overwriteFreeFrom(at); err != nil {
			return err
		}
	}
	return nil
}

// overwriteFreeFrom overwrites the free pages of one step, and returns where the next one begins.
//
// A crash loses nothing. The state on disk has none of these pages, and bbolt itself overwrites
// some of them in each commit, before that commit is the state.
func (s *Store) overwriteFreeFrom(from int64) (next int64, more bool, err error) {
	s.write.Lock() // while it is held, no free page is allocated
	defer s.write.Unlock()
	switch damage := s.damage.Load(); {
	case s.closed:
		return 0, false, ErrClosed
	case damage != nil:
		return 0, false, *damage
	}
	// Transactions that read an earlier state, which may have some of the pages, end before this
	// returns. Those that begin later read the current one.
	s.reading.Lock()
	s.reading.Unlock() //nolint:gocritic,staticcheck // it is a barrier
	err = s.view(func(tx *bolt.Tx) error {
		if err := s.file.Sync(); err != nil { // of a commit whose last sync failed
			return err
		}
		info, err := s.file.Stat()
		if err != nil {
			return err
		}
		page := make([]byte, s.db.Info().PageSize)
		size := int64(len(page))
		for next = from; next < min(from+overwriteStep, info.Size()); next += size {
			p, err := tx.Page(int(next / size))
			if err == nil && (p == nil || p.Type == "free") { // nil: no state has had it yet, but a commit that failed may have written to it
				err = overwrite(s.file, next, page)
			}
			if err != nil {
				return err
			}
		}
		if more = next < info.Size(); !more {
			err = mapping.Release(s.db.Info().Data, min(tx.Size(), info.Size())) // all of it has been looked at
		}
		return errors.Join(err, s.file.Sync())
	})
	return next, more, err
}

// overwrite overwrites the bytes at a place in a file, as many as buf has. It does not write where
// there are only zeros.
func overwrite(f *os.File, at int64, buf []byte) error {
	n, err := f.ReadAt(buf, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(bytes.Trim(buf[:n], "\x00")) == 0 {
		return nil
	}
	clear(buf)
	_, err = f.WriteAt(buf[:n], at)
	return err
}

// replace durably replaces a file by another one. It leaves the old one to overwriteReplaced: the
// file system frees its blocks, and does not overwrite them.
func (s *Store) replace(from, to string) error {
	old, err := os.OpenFile(s.dir.file(to), os.O_RDWR, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.dir.replace(from, to); err != nil || old == nil {
		old.Close() // it may still be the one with the name; Close of nil does nothing
		return err
	}
	s.replaced = append(s.replaced, old)
	return nil
}

// keepDamaged is how long a damaged file is left for a person to look at, by the machine's clock.
const keepDamaged = 7 * 24 * time.Hour

// discardDamaged leaves an old damaged file to overwriteReplaced.
func (s *Store) discardDamaged() error {
	path := s.dir.file(fileDamaged)
	info, err := os.Stat(path)
	if err != nil || time.Since(info.ModTime()) < keepDamaged {
		return nil //nolint:nilerr // there is none
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	s.replaced = append(s.replaced, f)
	return errors.Join(os.Remove(path), s.dir.sync())
}

// overwriteReplaced overwrites the files that were replaced, which frees their space. Only one
// call may run at a time.
func (s *Store) overwriteReplaced(ctx context.Context) error {
	defer s.closeReplaced()
	buf := make([]byte, 64<<10)
	for _, f := range s.replaced {
		info, err := f.Stat()
		for at := int64(0); err == nil && at < info.Size() && ctx.Err() == nil; at += int64(len(buf)) {
			err = overwrite(f, at, buf)
		}
		if err = errors.Join(err, f.Sync()); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) closeReplaced() {
	for _, f := range s.replaced {
		f.Close()
	}
	s.replaced = nil
}
