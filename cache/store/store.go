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
	// Logger gets what Open had to put right. By default nothing is logged.
	Logger *slog.Logger
	// LockTimeout is how long Open waits for another process to leave the
	// folder: 5 s by default, enough for one that is ending.
	LockTimeout time.Duration
	// SnapshotEvery is how often Run takes a snapshot, if anything changed: 6 h
	// by default. A snapshot costs reading the file twice and writing it once,
	// which an SD card bears a few times a day.
	SnapshotEvery time.Duration
	// MaxHeld bounds the bytes of objects that no view holds any more, and that
	// are kept for an open Reader only: 32 MiB by default. Beyond it they
	// go, and Read returns ErrChanged.
	MaxHeld int64
}

// Recovery is what Open did about a damaged file.
type Recovery struct {
	Cause    error // nil if the file was whole
	Snapshot bool  // the last snapshot took its place, rather than nothing
}

// Store is views, objects and tables in one file. See the package's comment.
type Store struct {
	opts     Options
	codec    codec
	dir      folder
	log      *slog.Logger
	recovery Recovery
	pins     pins

	db   *bolt.DB
	file *os.File // db's own

	damage  atomic.Pointer[error] // set once: what ErrDamaged is returned with
	damaged chan struct{}         // closed then

	snapshots sync.Mutex // held while one is written

	write sync.Mutex // held through each commit, and guards what follows
	// stuck says that a panic has left bbolt's locks taken: Close must not use them.
	stuck   bool
	closed  bool
	doubted map[string]bool // tables; see CheckTable
	unlock  func()
}

// Buckets of the file. Those of tables have a prefix of their own.
var (
	bucketMeta         = []byte("meta")
	bucketViews        = []byte("views")   // ID → header
	bucketMembers      = []byte("members") // ID → bucket of name → version, sum, size
	bucketObjects      = []byte("objects") // scope, name, version, sum → bytes
	bucketRefs         = []byte("refs")    // object's key → number of views, where there are more than one
	bucketUnreferenced = []byte("trash")   // object's key → size; in no view, kept for a reader
	bucketTables       = []byte("tables")  // name → bucket of key → value
)

// Absent returns a store that is closed from the beginning, to stand for one that
// cannot be opened: everything is ErrClosed.
func Absent() *Store { return &Store{db: &bolt.DB{}, closed: true} }

// Recovery says what Open had to put right.
func (s *Store) Recovery() Recovery { return s.recovery }

// Close waits for transactions that run, not for callbacks.
func (s *Store) Close() error {
	s.write.Lock()
	defer s.write.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	defer s.unlock()
	if err := s.closeFile(); err != nil {
		return fmt.Errorf("close cache: %w", err)
	}
	if s.damage.Load() != nil {
		return nil // the mark stays for the next Open
	}
	return s.dir.setState(state{})
}

// closeFile closes db, or if its locks are stuck only its file: that ends the
// lock of bbolt; the map of the file stays until the process ends.
func (s *Store) closeFile() error {
	if s.stuck {
		return s.file.Close()
	}
	return guarded(s.db.Close)
}

// view runs fn in a read transaction. What fn keeps of it, it must copy.
func (s *Store) view(fn func(*bolt.Tx) error) error {
	return s.marked(guarded(func() error {
		tx, err := s.db.Begin(false)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // ends the transaction
		return fn(tx)
	}))
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
	s.stuck = true // until bbolt has let go of its lock
	tx, err := s.db.Begin(true)
	if err != nil {
		s.stuck = false
		return err
	}
	// Does nothing after a commit, nor after one that failed. After a panic it
	// frees the lock, or panics too.
	defer func() {
		tx.Rollback() //nolint:errcheck // as above
		s.stuck = false
	}()
	if err := fn(tx); err != nil {
		return err
	}
	// The commit point: bbolt writes the new pages and syncs them, then writes
	// and syncs the page that makes them the state. A crash before that leaves
	// the state before.
	return tx.Commit()
}

// marked passes an error of a transaction on. If it shows damage to the file's
// pages, nothing is written any more, and the next Open will know.
func (s *Store) marked(err error) error {
	var f *corruption
	switch {
	case errors.Is(err, bolt.ErrDatabaseNotOpen): //nolint:staticcheck // the same value as in bbolt/errors
		return ErrClosed
	case errors.Is(err, bolt.ErrIncompatibleValue): //nolint:staticcheck // as above
		f = &corruption{err} // a bucket where a value belongs, or the other way round
	case !errors.As(err, &f):
		return spaceError(err)
	}
	damaged := fmt.Errorf("%w: %w; the cache must be opened again", ErrDamaged, f)
	if s.damage.CompareAndSwap(nil, &damaged) {
		defer close(s.damaged) // when the next Open knows
		if err := s.dir.setState(state{phase: phaseDamaged}); err != nil {
			damaged = fmt.Errorf("%w (it could not be marked: %w)", damaged, err)
		}
	}
	return damaged
}

// corruption is a panic of bbolt, a memory fault, or a record that has gone: all
// mean that pages are not what they should be. bbolt finds a record by its
// neighbours' keys; where one was lost, the next one written may be too.
type corruption struct{ cause any }

func (f *corruption) Error() string { return fmt.Sprintf("%v", f.cause) }

func (f *corruption) Unwrap() error {
	err, _ := f.cause.(error)
	return err
}

// guarded runs fn and returns its panic or memory fault as a *corruption. No callback
// may run within: its panics are not the file's.
func guarded(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			err = &corruption{cause}
		}
	}()
	return fn()
}

// Stats is how large a store is.
type Stats struct {
	FileBytes int64 // of the file
	FreeBytes int64 // of those, free for what comes next
}

// Stats costs nothing.
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
