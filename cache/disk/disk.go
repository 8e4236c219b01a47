// Package disk is the store and its writer, however often the file has to be opened again:
// because it was damaged, or because the machine did not let it be opened. Whoever keeps
// state in memory takes it over from the new file; see [Options].
//
// A Disk is opened, run, and closed by the end of Run. It may be called under the lock of a
// view: nothing but a read waits for the machine's disk, and the hooks Lost and Committed
// must not wait for such a lock.
package disk

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/edgehub-io/edgehub/cache/pause"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/store/writeback"
)

// MaxPending bounds the bytes that wait for the disk. A list of 10,000 pods fits
// in; where a disk is so slow that more waits, views are given up.
const MaxPending = 64 << 20

// FirstReopen and LastReopen bound the time between two attempts to open a store
// that cannot be opened.
const (
	FirstReopen = 2 * time.Second
	LastReopen  = time.Minute
)

// Disk is the store and its writer. When the file turns out to be damaged it is
// closed and opened again, which restores a snapshot or begins anew; whoever
// holds something in memory that the file held is told by reset.
//
// It is safe for concurrent use.
type Disk struct {
	dir     string
	options Options
	log     *slog.Logger
	failing atomic.Bool // the last commit

	Shared shared
	Seed   maphash.Seed // of entry.quick
	Boot   string       // see bootID

	mu      sync.RWMutex
	store   *store.Store // never nil; closed between two openings
	writer  *writeback.Writer
	openErr error // of the last attempt to open it, while it is not open
}

// Options are options of a disk.
type Options struct {
	Store store.Options // its Logger is the disk's

	// Lost is called with views whose changes could not be kept; see writeback.Options.
	Lost func(store.ID, error)
	// Reset is called when another file has taken the place of one that was damaged, or
	// could not be opened: what it holds counts, and not what is in memory.
	Reset func()
	// Wait reports whether a store that could not be opened is not to be opened yet.
	Wait func() bool
	// Opened is called after each attempt to open the store, with its error, and committed
	// after each commit.
	Opened    func(*store.Store, error)
	Committed func(writeback.CommitStats)
}

// Open opens the store. Where the machine does not let it be opened (a full or
// read-only disk, say), the node is served all the same: what is read stays in
// memory, within bounds, and opening is tried again. Errors are ErrLocked and
// ErrKey, which a person has to put right.
func Open(dir string, options Options) (*Disk, error) {
	d := &Disk{dir: dir, options: options, log: options.Store.Logger, Seed: maphash.MakeSeed(), Boot: bootID()}
	s, err := store.Open(dir, options.Store)
	switch {
	case errors.Is(err, store.ErrLocked), errors.Is(err, store.ErrKey):
		return nil, fmt.Errorf("open cache: %w", err)
	case err != nil:
		s, d.openErr = store.Absent(), err
		d.log.Error("cache cannot be opened; until it can, what is read is kept in memory only", "folder", dir, "err", err)
	}
	options.Opened(s, err)
	d.store, d.writer = s, d.newWriter(s)
	return d, nil
}

func (d *Disk) newWriter(s *store.Store) *writeback.Writer {
	return writeback.New(s, writeback.Options{
		MaxPending: MaxPending,
		Lost:       d.options.Lost,
		Committed:  d.committed,
	})
}

// largeCommit is the size, in bytes, of a commit that leaves so much garbage, its
// own and that of the lists before it, that it is given back to the machine at
// once: a hub that is quiet afterwards would keep it for minutes. That takes some
// milliseconds, in which nobody waits.
const largeCommit = 4 << 20

// committed is told of each commit.
func (d *Disk) committed(c writeback.CommitStats) {
	if c.Bytes > largeCommit {
		defer debug.FreeOSMemory()
	}
	d.failing.Store(c.Err != nil)
	if c.Err != nil {
		d.log.Warn("cache could not be written; what is new stays in memory, and is tried again", "folder", d.dir, "err", c.Err)
	}
	d.options.Committed(c)
}

// Run writes what is collected until ctx ends, and once more. It returns nil:
// the node is served also where nothing can be written any more.
func (d *Disk) Run(ctx context.Context) error {
	for {
		err := d.openErr
		if err == nil {
			err = d.runOnce(ctx)
		}
		if closeErr := d.store.Close(); err == nil {
			err = closeErr
		}
		if ctx.Err() != nil {
			if err != nil {
				d.log.Error("cache was not written to its end; what is missing is read again from the cloud", "folder", d.dir, "err", err)
			}
			return nil
		}
		if d.openErr == nil {
			d.log.Error("cache is damaged; it is opened again", "folder", d.dir, "err", err)
		}
		absent := d.openErr != nil
		if !d.reopen(ctx, absent) {
			return nil
		}
	}
}

func (d *Disk) runOnce(ctx context.Context) error {
	s, w := d.Now()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.Run(ctx) })
	g.Go(func() error { return s.Run(ctx) })
	return g.Wait()
}

// reopen opens the store again, however long that takes. It returns false when
// ctx has ended.
func (d *Disk) reopen(ctx context.Context, absent bool) bool {
	for wait := FirstReopen; ; wait = min(2*wait, LastReopen) {
		for absent && d.options.Wait() {
			if !pause.Sleep(ctx, FirstReopen) {
				return false
			}
		}
		s, err := store.Open(d.dir, d.options.Store)
		d.options.Opened(s, err)
		if err == nil {
			d.Use(s)
			d.log.Info("cache is open again", "folder", d.dir)
			return true
		}
		d.log.Error("cache cannot be opened; it is tried again", "folder", d.dir, "in", wait, "err", err)
		if !pause.Sleep(ctx, wait) {
			return false
		}
	}
}

// Use has the store take the place of the one before.
func (d *Disk) Use(s *store.Store) {
	d.mu.Lock()
	d.store, d.writer, d.openErr = s, d.newWriter(s), nil
	d.mu.Unlock()
	d.failing.Store(false)
	d.options.Reset()
}

// Close closes the store of a disk that is not run.
func (d *Disk) Close() error {
	s, _ := d.Now()
	return s.Close()
}

// IsFailing reports whether the last commit failed.
func (d *Disk) IsFailing() bool { return d.failing.Load() }

// Clock is the time as it is noted in views: to the second.
func (d *Disk) Clock() time.Time { return time.Now().UTC().Truncate(time.Second) }

// Now is the store and its writer, until the file is opened again.
func (d *Disk) Now() (*store.Store, *writeback.Writer) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.store, d.writer
}

// Change takes over a change of a view. It does no I/O.
func (d *Disk) Change(c *store.Change) {
	_, w := d.Now()
	if err := w.Change(*c); err != nil {
		d.options.Lost(c.ID, err)
	}
}

// Get returns the value of a key in a table, also where it is not on disk yet, or
// store.ErrNotFound: where the store cannot be opened, too.
func (d *Disk) Get(table, key string) ([]byte, error) {
	s, w := d.Now()
	if value, ok := w.Get(table, key); ok {
		if value == nil {
			return nil, store.ErrNotFound
		}
		return value, nil
	}
	value, err := s.Get(table, key)
	if errors.Is(err, store.ErrClosed) {
		return nil, store.ErrNotFound
	}
	return value, err
}

// Range calls fn for each key of a table that is on disk.
func (d *Disk) Range(table, from string, fn func(key string, value []byte) error) error {
	s, _ := d.Now()
	if err := s.Range(table, from, fn); !errors.Is(err, store.ErrClosed) {
		return err
	}
	return nil
}

// CheckTable reports a table of which something on disk is damaged, or was lost. See
// store.CheckTable.
func (d *Disk) CheckTable(table string) error {
	s, _ := d.Now()
	if err := s.CheckTable(table); !errors.Is(err, store.ErrClosed) {
		return err
	}
	return nil
}

// Put takes over new values of keys; they are on disk within a second or so.
func (d *Disk) Put(pairs ...store.Pair) error {
	_, w := d.Now()
	return w.Put(pairs...)
}

// bootID identifies the time since the machine was started; it is empty where the kernel
// does not say.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// SharedBytes returns an object that is given in two parts: the bytes that another
// client has just read, or else a copy.
func (d *Disk) SharedBytes(sum store.Sum, head string, rest []byte) []byte {
	if b := d.Shared.Take(sum); b != nil {
		return b
	}
	b := append(append(make([]byte, 0, len(head)+len(rest)), head...), rest...)
	d.Shared.Put(sum, b)
	return b
}
