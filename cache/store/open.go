package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

// Open opens the store in a folder, which it creates if needed. It reads the headers of views
// and the inner pages of the file, and the whole file only after several crashes in a row. A
// damaged file is moved aside and replaced by the last snapshot, or by an empty file; see
// Recovery.
//
// Its errors are ErrLocked, ErrKey, and those of the machine (permissions, space, memory). After
// an error no file has changed.
func Open(path string, opts Options) (*Store, error) {
	s := &Store{opts: opts, dir: folder(path), log: cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))}
	s.opts.LockTimeout = cmp.Or(opts.LockTimeout, 5*time.Second)
	s.opts.SnapshotEvery = cmp.Or(opts.SnapshotEvery, 6*time.Hour)
	s.opts.MaxHeld = cmp.Or(opts.MaxHeld, 32<<20)
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("open cache %s: %w", path, err)
	}
	return s, nil
}

func (s *Store) open() (err error) {
	if s.codec.Codec, err = seal.New(s.opts.Key); err != nil {
		return err
	}
	if err := s.dir.prepare(); err != nil {
		return err
	}
	if s.unlock, err = s.dir.lock(s.opts.LockTimeout); err != nil {
		return err
	}
	before, err := s.dir.state()
	if err == nil {
		err = s.openAs(before)
	}
	if err != nil {
		s.closeReplaced()
		s.unlock()
	}
	return err
}

func (s *Store) openAs(before state) error {
	level, opening := before.next()
	if err := s.setState(opening); err != nil {
		return err
	}
	if err := s.openBest(level); err != nil {
		return errors.Join(err, s.dir.setState(before)) // this was no crash
	}
	if err := s.setState(before.opened(level)); err != nil {
		return errors.Join(err, s.closeFile())
	}
	return nil
}

// setState writes the state file. It ignores a full disk, which does not prevent reading; a
// truncated state makes the next Open check the whole file.
func (s *Store) setState(now state) error {
	err := spaceError(s.dir.setState(now))
	if errors.Is(err, ErrNoSpace) {
		s.log.Warn("cache state was not written", "state", now.phase, "error", err)
		return nil
	}
	return err
}

// openBest opens the file, or else the snapshot, or else an empty file.
func (s *Store) openBest(level checkLevel) error {
	damage := errors.New("the hub ended twice while it opened the file, or found damage in it")
	if level != noCheck {
		damage = s.openMain(level)
		if damage == nil || !isDamage(damage) {
			return damage
		}
	}
	s.recovery.Cause = damage
	if err := s.replace(fileMain, fileDamaged); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("move the damaged file aside: %w", err)
	}
	err := s.openSnapshot()
	if errors.Is(err, ErrNoSpace) && os.Remove(s.dir.file(fileDamaged)) == nil {
		// A working cache is worth more than the damaged file.
		s.log.Warn("damaged cache file was removed to make room for a new one", "file", s.dir.file(fileDamaged))
		err = s.openSnapshot()
	}
	if err != nil {
		return err
	}
	attrs := []any{"cause", damage, "moved to", s.dir.file(fileDamaged), "restored from snapshot", s.recovery.Snapshot}
	if errors.Is(damage, ErrFormat) {
		s.log.Warn("cache file has the format of another version of the hub and has been moved aside; nothing can be read offline until it has been read again from the cloud", attrs...)
	} else {
		s.log.Warn("cache file was damaged and has been moved aside", attrs...)
	}
	return nil
}

// openSnapshot replaces the file by the snapshot. The snapshot is moved, not copied: if it is
// damaged in a way that is noticed late, it is not used again.
func (s *Store) openSnapshot() error {
	err := s.replace(fileSnapshot, fileMain)
	if errors.Is(err, fs.ErrNotExist) {
		return s.openMain(quickCheck) // creates an empty file
	}
	if err != nil {
		return err
	}
	if err = s.openMain(fullCheck); err == nil {
		s.recovery.Snapshot = true
		return nil
	}
	if !isDamage(err) {
		return err
	}
	s.recovery.Cause = errors.Join(s.recovery.Cause, fmt.Errorf("the snapshot: %w", err))
	if err := os.Remove(s.dir.file(fileMain)); err != nil {
		return err
	}
	return s.openMain(quickCheck)
}

// isDamage reports whether an error shows a damaged file. Unknown errors count as damage:
// otherwise the node would stay without a cache.
func isDamage(err error) bool {
	for _, other := range []error{
		ErrKey, ErrNoSpace, fs.ErrPermission, bolt.ErrTimeout, //nolint:staticcheck // the same value as in bbolt/errors
		syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM,
	} {
		if errors.Is(err, other) {
			return false
		}
	}
	return true
}

// openMain opens and checks the file, which it creates if needed.
func (s *Store) openMain(level checkLevel) error {
	if err := checkPages(s.dir.file(fileMain), level == fullCheck); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.openFile(); err != nil {
		return err
	}
	err := guarded(s.ready)
	if err == nil {
		err = s.compactIfSparse()
	}
	if err != nil {
		return errors.Join(err, s.closeFile())
	}
	return nil
}

// openFile opens the file with bbolt.
func (s *Store) openFile() error {
	s.stuck = false
	s.damage.Store(nil)
	s.damaged = make(chan struct{})
	s.doubted = map[string]bool{}
	var file *os.File
	err := guarded(func() (err error) {
		s.db, err = bolt.Open(s.dir.file(fileMain), 0o600, s.boltOptions(&file))
		return err
	})
	if _, ok := errors.AsType[*corruption](err); ok && file != nil {
		file.Close()
	}
	if err != nil {
		return spaceError(err)
	}
	s.file = file
	s.db.AllocSize = allocSize
	return nil
}

const (
	// allocSize is the number of bytes by which the file grows at least.
	allocSize = 1 << 20
	// mapSize is the address space that is mapped at first. To map more, bbolt waits for all
	// readers and delays new ones, which a store up to this size avoids.
	mapSize = 1 << 30
)

// boltOptions returns options with which damage does not end the process. Without a synced
// freelist, bbolt would scan the whole file for free pages in a goroutine of its own, whose
// panics cannot be recovered.
func (s *Store) boltOptions(file **os.File) *bolt.Options {
	opts := &bolt.Options{
		Timeout:        s.opts.LockTimeout,
		NoFreelistSync: false,
		FreelistType:   bolt.FreelistArrayType,
		OpenFile: func(name string, flag int, mode os.FileMode) (f *os.File, err error) {
			f, err = os.OpenFile(name, flag, mode)
			*file = f
			return f, err
		},
	}
	if strconv.IntSize == 64 {
		opts.InitialMmapSize = mapSize
	}
	return opts
}

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
