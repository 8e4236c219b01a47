package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Options of a store. The zero value is usable.
type Options struct {
	// Key is an AES-256 key of 32 bytes. Without one nothing is encrypted.
	Key []byte
	// Logger logs what Open had to repair. By default nothing is logged.
	Logger *slog.Logger
	// LockTimeout is how long Open waits for another process to release the folder: 5 s by
	// default, enough for one that is ending.
	LockTimeout time.Duration
	// SnapshotEvery is how often Run takes a snapshot, if anything changed: 6 h by default. With
	// what it overwrites it reads the file three times and writes it twice, which an SD card
	// bears a few times a day.
	SnapshotEvery time.Duration
	// MaxHeld bounds the objects, in bytes, that are in no view any more and are only kept for
	// an open Reader: 32 MiB by default. Beyond it they are removed, and Read returns
	// ErrChanged.
	MaxHeld int64
}

// Recovery is what Open did about a damaged file.
type Recovery struct {
	Cause    error // nil if the file was not damaged
	Snapshot bool  // it was replaced by the last snapshot, rather than by an empty file
}

// Store stores views, objects and tables in one file. See the package's comment.
type Store struct {
	opts     Options
	codec    codec
	dir      folder
	log      *slog.Logger
	recovery Recovery
	readers  atomic.Int64 // number of open Readers

	db   *bolt.DB
	file *os.File // of db
	// reading is held, shared, by each read transaction.
	reading sync.RWMutex
	// replaced are files without a name, which are to be overwritten. Open, Run and Close use it,
	// one after the other.
	replaced []*os.File

	damage  atomic.Pointer[error] // set once: the ErrDamaged that is returned
	damaged chan struct{}         // closed when damage is set

	write sync.Mutex // held during each commit; guards the following
	// stuck is set when a panic has left bbolt's locks taken: Close must not use them.
	stuck   bool
	closed  bool
	doubted map[string]bool // tables; see CheckTable
	unlock  func()
}

// Buckets of the file.
var (
	bucketMeta         = []byte("meta")
	bucketViews        = []byte("views")   // ID → header
	bucketMembers      = []byte("members") // ID → bucket of name → version, sum, size
	bucketObjects      = []byte("objects") // scope, name, version, sum → bytes
	bucketRefs         = []byte("refs")    // object's key → number of views, if more than one
	bucketUnreferenced = []byte("trash")   // object's key → size; in no view, kept for a Reader
	bucketTables       = []byte("tables")  // name → bucket of key → value
)

// Absent returns a closed store, in place of one that cannot be opened.
func Absent() *Store { return &Store{db: &bolt.DB{}, closed: true} }

// Recovery returns what Open did about a damaged file.
func (s *Store) Recovery() Recovery { return s.recovery }

// Close waits for running transactions, not for callbacks.
func (s *Store) Close() error {
	s.write.Lock()
	defer s.write.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	defer s.unlock()
	s.closeReplaced()
	if err := s.closeFile(); err != nil {
		return fmt.Errorf("close cache: %w", err)
	}
	if s.damage.Load() != nil {
		return nil // the state file records it for the next Open
	}
	return s.dir.setState(state{})
}

// closeFile closes db, or only its file if bbolt's locks are stuck: that releases bbolt's file
// lock, and the file stays mapped until the process ends.
func (s *Store) closeFile() error {
	if s.stuck {
		return s.file.Close()
	}
	return guarded(s.db.Close)
}

// view runs fn in a read transaction. fn must copy what it keeps.
func (s *Store) view(fn func(*bolt.Tx) error) error {
	s.reading.RLock()
	defer s.reading.RUnlock()
	return s.marked(guarded(func() error { return s.db.View(fn) }))
}

// update runs fn in a write transaction and commits it.
func (s *Store) update(fn func(*bolt.Tx) error) error {
	s.write.Lock()
	defer s.write.Unlock()
	if s.closed {
		return ErrClosed
	}
	if cause := s.damage.Load(); cause != nil {
		return *cause
	}
	return s.marked(guarded(func() error { return s.updateLocked(fn) }))
}

func (s *Store) updateLocked(fn func(*bolt.Tx) error) error {
	s.stuck = true // until bbolt has released its lock
	tx, err := s.db.Begin(true)
	if err != nil {
		s.stuck = false
		return err
	}
	defer func() {
		tx.Rollback() //nolint:errcheck // after a commit, also a failed one, it does nothing; after a panic it releases the lock, or panics too
		s.stuck = false
	}()
	if err := fn(tx); err != nil {
		return err
	}
	// The commit point: bbolt writes and syncs the new pages, then the meta page that makes
	// them the current state. A crash before that leaves the previous state.
	return tx.Commit()
}

// marked returns the error of a transaction for callers. If it shows that the file's pages are
// damaged, nothing is written any more, and the state file records it for the next Open.
func (s *Store) marked(err error) error {
	f, ok := errors.AsType[*corruption](err)
	switch {
	case errors.Is(err, bolt.ErrDatabaseNotOpen): //nolint:staticcheck // the same value as in bbolt/errors
		return ErrClosed
	case errors.Is(err, bolt.ErrIncompatibleValue): //nolint:staticcheck // as above
		f = &corruption{err} // a bucket instead of a value, or the other way round
	case !ok:
		return spaceError(err)
	}
	damaged := fmt.Errorf("%w: %w; the cache must be opened again", ErrDamaged, f)
	if s.damage.CompareAndSwap(nil, &damaged) {
		defer close(s.damaged) // after the state file is written
		if err := s.dir.setState(state{phase: phaseDamaged}); err != nil {
			damaged = fmt.Errorf("%w (it could not be marked: %w)", damaged, err)
		}
	}
	return damaged
}

// corruption is a panic of bbolt, a memory fault, or a missing record: each means that pages
// are damaged. bbolt finds a record by the keys next to it; where one was lost, the next one
// written may be lost, too.
type corruption struct{ cause any }

func (f *corruption) Error() string { return fmt.Sprintf("%v", f.cause) }

func (f *corruption) Unwrap() error {
	err, _ := f.cause.(error)
	return err
}

// guarded runs fn, and returns its panic or memory fault as a *corruption. fn must not call
// callbacks, whose panics have other causes.
func guarded(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			err = &corruption{cause}
		}
	}()
	return fn()
}

// Stats is the size of a store.
type Stats struct {
	FileBytes int64 // of the file
	FreeBytes int64 // of free pages in it
}

// Stats returns the size of the store, without reading the file.
func (s *Store) Stats() (Stats, error) {
	var stats Stats
	err := s.view(func(tx *bolt.Tx) error {
		db := s.db.Stats()
		page := int64(s.db.Info().PageSize)
		stats = Stats{FileBytes: tx.Size(), FreeBytes: int64(db.FreePageN+db.PendingPageN) * page}
		return nil
	})
	return stats, err
}
