package store

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/edgehub-io/edgehub/cache/store/seal"
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
	// RewriteEvery is how often Run writes the log anew, if anything has changed, so that what was
	// removed is not in it any more: 6 h by default. An SD card bears that a few times a day. A log of
	// which more than half is not needed is written anew earlier.
	RewriteEvery time.Duration
	// Damaged is called when an object or value cannot be read because it is damaged, once for an
	// object. It must not block. By default nothing is called.
	Damaged func(error)
	// DamagedMember is called by Run for each member that is damaged, after the log was written anew, which reads
	// all of it. It may wait. By default nothing is called.
	DamagedMember func(view ID, name string)
}

// Recovery is what Open found damaged.
type Recovery struct {
	// Cause is nil if all commits were found. Otherwise some were lost: views and tables may be older
	// than they were, but each view is as a commit has left it.
	Cause error
}

// Store stores views, objects and tables in a log. See the package's comment.
type Store struct {
	opts     Options
	codec    seal.Codec
	dir      folder
	logger   *slog.Logger
	recovery Recovery
	readers  atomic.Int64 // number of open Readers
	grown    chan struct{}
	size     atomic.Int64 // of the files, in bytes
	written  atomic.Int64 // to files since the start, in bytes

	isReadOnly atomic.Bool // readOnly is set

	write    sync.Mutex // held during each commit, and while the log is replaced; guards the following
	closed   bool
	readOnly error  // why the files cannot be written; nil if they can be
	number   uint64 // of the last commit
	changed  bool   // since the log was written anew
	// lost is 1 until a commit has followed on the loss of some. A log that is written anew before
	// begins with commit 2, so that the next start finds the loss, too: the owner has not written yet
	// what follows from it.
	lost   uint64
	retry  time.Time // until then a log that has grown is not written anew
	synced bool      // the folder was, since the log got its name; after a start that is not known
	unlock func()

	file  sync.RWMutex // held, shared, while log is read; taken before mu
	log   logFile
	index indexFile

	mu       sync.RWMutex // guards the following; who holds write may read them without
	contents *contents    // nil when the store is closed
	// settled are the tables that were changed since commits were lost; nil if none were.
	settled map[string]bool
}

// Absent returns a closed store, in place of one that cannot be opened.
func Absent() *Store { return &Store{closed: true} }

// Recovery returns what Open found damaged.
func (s *Store) Recovery() Recovery { return s.recovery }

// IsReadOnly reports whether nothing can be written, because the file system is read-only.
func (s *Store) IsReadOnly() bool { return s.isReadOnly.Load() }

// Open opens the store in a folder, which it creates if needed. It reads the index, or if that is
// damaged the log. What is damaged in both is lost, and nothing else; see Recovery.
//
// On a file system that is read-only, what is there can be read, and commits return ErrReadOnly.
//
// Its errors are ErrLocked, ErrKey, and those of the machine (permissions, space, memory). After
// an error no file has changed.
func Open(path string, opts Options) (*Store, error) {
	s := &Store{opts: opts, dir: folder(path), logger: cmp.Or(opts.Logger, slog.New(slog.DiscardHandler)), grown: make(chan struct{}, 1)}
	s.opts.LockTimeout = cmp.Or(opts.LockTimeout, 5*time.Second)
	if opts.Damaged == nil {
		s.opts.Damaged = func(error) {}
	}
	if opts.DamagedMember == nil {
		s.opts.DamagedMember = func(ID, string) {}
	}
	s.opts.RewriteEvery = cmp.Or(opts.RewriteEvery, 6*time.Hour)
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("open cache %s: %w", path, err)
	}
	return s, nil
}

func (s *Store) open() (err error) {
	if s.codec, err = seal.New(s.opts.Key); err != nil {
		return err
	}
	s.readOnly = s.dir.prepare()
	if s.readOnly != nil && !errors.Is(s.readOnly, syscall.EROFS) {
		return s.readOnly
	}
	if s.unlock, err = s.dir.lock(s.opts.LockTimeout); err != nil {
		return err
	}
	s.contents = newContents()
	if err = s.load(); err != nil {
		err = errors.Join(spaceError(err), s.closeFiles())
		s.unlock()
		return err
	}
	if s.readOnly != nil {
		s.isReadOnly.Store(true)
		s.logger.Error("cache cannot be written, and is only read: remount its file system, with space and without errors", "folder", s.dir, "err", s.readOnly)
	}
	return nil
}

// writable returns an ErrReadOnly if the files cannot be written. s.write must be held.
func (s *Store) writable() error {
	if s.readOnly == nil {
		return nil
	}
	s.file.Lock()
	defer s.file.Unlock()
	log, err := os.OpenFile(s.log.file.Name(), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	s.log.file.Close()
	s.log.file = log
	if err := s.cut(); err != nil { // which a start that could not write has left out
		return err
	}
	s.readOnly = nil
	s.isReadOnly.Store(false)
	s.index.close() // what it lacks is in the log; the next log has a new one
	s.logger.Info("cache can be written again", "folder", s.dir)
	return nil
}

// Close waits for what is running, not for callbacks.
func (s *Store) Close() error {
	s.write.Lock()
	defer s.write.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.file.Lock()
	defer s.file.Unlock()
	s.mu.Lock()
	s.contents = nil
	s.mu.Unlock()
	err := s.closeFiles()
	s.unlock()
	if err != nil {
		return fmt.Errorf("close cache: %w", err)
	}
	return nil
}

func (s *Store) closeFiles() error {
	s.index.close()
	if s.log.file == nil {
		return nil
	}
	return s.log.file.Close()
}

// logFile is the log: the bytes of objects and values, and the records of commits.
type logFile struct {
	file    *os.File
	id      fileID
	created time.Time
	end     int64 // where the next commit will be; the file may be longer, or have been cut
}

func (l *logFile) appender(commit uint64) *appender {
	return &appender{file: l.file, id: l.id, commit: commit, at: l.end}
}

// readAt is f.ReadAt, but for sectors that the disk cannot read: what is in them is zero, like that of other
// damage, and a checksum will not match.
func readAt(f io.ReaderAt, b []byte, at int64) (int, error) {
	n, err := f.ReadAt(b, at)
	if !errors.Is(err, syscall.EIO) {
		return n, err
	}
	for n = 0; n < len(b); {
		piece := b[n:min(n+sector-int((at+int64(n))%sector), len(b))]
		got, err := f.ReadAt(piece, at+int64(n))
		if errors.Is(err, syscall.EIO) {
			clear(piece[got:])
			got, err = len(piece), nil
		}
		if n += got; err != nil {
			return n, err
		}
	}
	return n, nil
}

// sector is the size of what a disk can read or not, in bytes: that of a page of the kernel's cache.
const sector = 4 << 10

// read fills b with what is at a place. What is beyond the end of the file is zero.
func (l *logFile) read(b []byte, at int64) error {
	n, err := readAt(l.file, b, at)
	if err != nil && n < len(b) {
		if !isEOF(err) {
			return fmt.Errorf("%s: %w", l.file.Name(), err)
		}
		clear(b[n:]) // the log was cut: a checksum will not match
	}
	return nil
}

// indexFile is a copy of the records of commits, without the bytes of objects, for a fast start, and
// in case of damage. It is not synced, and what it lacks is in the log.
type indexFile struct {
	file *os.File // nil if it cannot be written
	id   fileID
	end  int64
}

func (x *indexFile) add(number uint64, sealed []byte) {
	if x.file == nil {
		return
	}
	b := frame{frameCommit, len(sealed), number}.append(make([]byte, 0, frameHeader+len(sealed)), x.id, x.end)
	b = append(b, sealed...)
	if _, err := x.file.WriteAt(b, x.end); err != nil {
		x.close() // an index that lacks a commit must not have later ones
		return
	}
	x.end += int64(len(b))
}

func (x *indexFile) close() {
	if x.file != nil {
		x.file.Close()
		x.file = nil
	}
}
