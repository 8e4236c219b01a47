package log

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Options of a Log. The zero value is usable.
type Options struct {
	// Key is an AES-256 key of 32 bytes. Without one nothing is encrypted.
	Key []byte
	// Logger logs what Open had to repair, and what Run could not do. By default nothing is logged.
	Logger *slog.Logger
	// LockTimeout is how long Open waits for another process to release the folder: 5 s by default, enough
	// for one that is ending.
	LockTimeout time.Duration
	// MaxPending bounds the bytes that wait for a commit: 64 MiB by default. A running commit may have as many
	// again.
	MaxPending int64
	// Keep are the log's own tables of what clients have written for the cloud: they stay when a file
	// that was opened late is written from memory.
	Keep []string

	// Committed is called after each commit, also one that failed and is tried again.
	Committed func(time.Duration, error)
}

func (o Options) withDefaults() Options {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.LockTimeout = cmp.Or(o.LockTimeout, lockTimeout)
	o.MaxPending = cmp.Or(o.MaxPending, 64<<20)
	if o.Committed == nil {
		o.Committed = func(time.Duration, error) {}
	}
	return o
}

// Log is a write-ahead log. See the package's comment. It is safe for concurrent use.
type Log struct {
	dir   folder
	opts  Options
	codec codec
	log   *slog.Logger

	// Each of these channels holds one element, which is enough: who receives it looks at everything.
	dirty chan struct{} // something waits for a commit
	waits chan struct{} // something that may wait does
	grown chan struct{} // much of the file may not be needed
	look  chan struct{} // changes are missing in the file, or one that was replaced may have no Reader any more

	dueBytes, dueTimes, growBytes int64 // the constants, but in tests
	sync                          func(*os.File) error

	size, written atomic.Int64 // see Stats

	rewriting sync.Mutex // held while a new file is written; taken before write

	write  sync.Mutex // held during a commit, and while the file is replaced; taken before mu
	state  State      // nil before Open
	unlock func()
	number uint64    // of the last commit
	broken bool      // a sync failed: nothing more can be appended to the file
	retry  time.Time // until then a file that has grown is not replaced

	mu      sync.RWMutex
	file    *file // nil while it is not open
	next    *queue
	current *queue // in a running commit, or nil
	tables  map[string]map[string]value
	givenUp map[string]bool // tables
	readers int             // that are open
	retired []*file         // that were replaced, and are not overwritten yet
	trouble error           // why what is new is not on disk
}

// New returns a log in a folder, which is not opened: until Open, and as long as that fails, everything
// waits in memory, and can be read from there. Changes are put after Open only. The error is one of Options.
func New(dir string, opts Options) (*Log, error) {
	codec, err := newCodec(opts.Key)
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	salt := make([]byte, sha256.Size)
	rand.Read(salt) // never fails
	opts = opts.withDefaults()
	signal := func() chan struct{} { return make(chan struct{}, 1) }
	return &Log{
		dir: folder(dir), opts: opts, codec: codec, log: opts.Logger,
		dirty: signal(), waits: signal(), grown: signal(), look: signal(),
		dueBytes: dueBytes, dueTimes: dueTimes, growBytes: growBytes, sync: (*os.File).Sync,
		next: newQueue(), givenUp: map[string]bool{}, trouble: ErrNotOpen,
		tables: map[string]map[string]value{tableSalt: {keySalt: {small: salt}}},
	}, nil
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Open opens the file, which it creates if needed, and applies what it has to state.
//
// ErrLocked and ErrKey are for an administrator. After any other error, as that of a folder that is mounted
// later, the log works in memory, and Run tries again. After an error no file has changed.
//
// On a file system that is read-only the file is read, and commits fail with ErrReadOnly until it is not any more.
func (l *Log) Open(state State) error {
	l.write.Lock()
	defer l.write.Unlock()
	l.state = state
	return l.openLocked(true)
}

// openLocked reads the file, or writes it from memory. l.write must be held.
func (l *Log) openLocked(replay bool) error {
	err := l.tryOpen(replay)
	if err != nil {
		err = fmt.Errorf("open cache %s: %w", l.dir, diskError(err))
		l.setTrouble(fmt.Errorf("%w: %w", ErrNotOpen, err))
	}
	return err
}

func (l *Log) tryOpen(replay bool) error {
	prepareErr := l.dir.prepare()
	if prepareErr != nil && !errors.Is(prepareErr, syscall.EROFS) {
		return prepareErr
	}
	unlock, err := l.dir.lock(l.opts.LockTimeout)
	if err != nil {
		return err
	}
	if err := l.load(replay, prepareErr); err != nil {
		unlock()
		return err
	}
	l.unlock = unlock
	l.setTrouble(nil)
	if prepareErr != nil {
		l.setTrouble(fmt.Errorf("%w: %w", ErrReadOnly, prepareErr))
		l.log.Error("cache cannot be written, and is only read: remount its file system, with space and without errors", "folder", l.dir, "err", prepareErr)
	}
	return nil
}

// Close closes the file without writing what waits. It is for a log without Run, which closes it itself. Bodies can be
// read no longer.
func (l *Log) Close() error {
	l.rewriting.Lock()
	defer l.rewriting.Unlock()
	l.write.Lock()
	defer l.write.Unlock()
	l.mu.Lock()
	files := l.retired
	l.retired = nil
	f := l.file
	l.file, l.trouble = nil, ErrNotOpen
	l.mu.Unlock()
	if f == nil {
		return nil
	}
	err := l.overwrite(f, files)
	if fd := f.take(); fd != nil {
		err = errors.Join(err, fd.Close())
	}
	l.unlock()
	if err != nil {
		return fmt.Errorf("close cache: %w", err)
	}
	return nil
}

// Trouble returns why what is new is in memory only, or nil: ErrNotOpen, ErrReadOnly, ErrNoSpace, or another
// error of the disk.
func (l *Log) Trouble() error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.trouble
}

func (l *Log) setTrouble(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trouble = err
}

// Stats is the size of a log.
type Stats struct {
	FileBytes    int64 // of the file
	WrittenBytes int64 // to disk since the start: commits, new files, and where old ones were overwritten
	PendingBytes int64 // that wait for a commit, or are in one
}

// Stats returns the size of the log. It does no I/O.
func (l *Log) Stats() Stats {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s := Stats{FileBytes: l.size.Load(), WrittenBytes: l.written.Load(), PendingBytes: l.next.size}
	if l.current != nil {
		s.PendingBytes += l.current.size
	}
	return s
}
