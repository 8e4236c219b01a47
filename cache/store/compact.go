package store

import (
	"errors"
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"
)

const (
	// compactFrom is the size of the smallest file that is compacted, in bytes.
	compactFrom = 4 << 20
	// compactTx bounds the memory of one transaction of a compaction, in bytes.
	compactTx = 4 << 20
)

// compactIfSparse rewrites the file if more than half of it is free: bbolt reuses free pages,
// but never shrinks a file. A full disk is no error: the file then stays as it is.
func (s *Store) compactIfSparse() error {
	stats, err := s.Stats()
	if err != nil {
		return err
	}
	if stats.FileBytes < compactFrom || stats.FreeBytes*2 <= stats.FileBytes {
		return nil
	}
	if err := guarded(s.writeCompacted); err != nil {
		if _, ok := errors.AsType[*corruption](err); ok {
			return err
		}
		s.log.Warn("cache file could not be made smaller", "error", err)
		return nil
	}
	if err := s.closeFile(); err != nil {
		return err
	}
	// The commit point of a compaction.
	err = s.replace(fileNew, fileMain)
	return errors.Join(err, s.openFile())
}

func (s *Store) writeCompacted() (err error) {
	if err := s.dir.remove(fileNew); err != nil {
		return err
	}
	path := s.dir.file(fileNew)
	var file *os.File
	opts := s.boltOptions(&file)
	opts.NoSync = true // it is synced once, at the end
	compacted, err := bolt.Open(path, 0o600, opts)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, compacted.Close())
		if err != nil {
			os.Remove(path)
		}
	}()
	compacted.AllocSize = allocSize
	if err := bolt.Compact(compacted, s.db, compactTx); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	return compacted.Sync()
}
