// Package disk wraps the store and its writer, and opens the file late if it could not be opened at first.
// Until then everything waits in the writer. If memory has no state by then, it is loaded from the file, as at a
// start. Otherwise memory is the truth: the file is begun anew, and the writer writes what waits. See [Options].
//
// A Disk is opened and run; Run closes it at its end. It may be called under the lock of a
// view: only reads wait for the machine's disk, and the hooks Lost and Committed must not
// wait for such a lock. It is safe for concurrent use.
package disk

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/edgehub-io/edgehub/cache/pause"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/store/writeback"
)

// MaxPending bounds the bytes that wait for the disk. It is enough for a list of 10,000 pods.
// If a slow disk exceeds it, views become stale.
const MaxPending = 64 << 20

// FirstReopen and LastReopen are the first and the longest pause between attempts to open the
// store.
const (
	FirstReopen = 2 * time.Second
	LastReopen  = time.Minute
)

// Disk is the store and its writer.
type Disk struct {
	dir     string
	options Options
	log     *slog.Logger
	failing atomic.Bool // the last commit failed

	Interned interned
	Seed     maphash.Seed // of entry.quick
	Boot     string       // see bootID

	writer *writeback.Writer

	mu      sync.RWMutex
	store   *store.Store // never nil; closed until it could be opened
	openErr error        // of the first attempt to open it, while it is not open
}

// Options are options of a disk.
type Options struct {
	Store store.Options // its Logger is used by the disk, too

	// Lost is called for views whose changes could not be written; see writeback.Options.
	Lost func(store.ID, error)
	// HasState reports whether memory has what could be served, when a store can be opened that could
	// not be opened at first. If not, Load is called to load the state from it.
	HasState func() bool
	Load     func()
	// Wait reports whether to postpone opening a store that could not be opened.
	Wait func() bool
	// Unsent are the tables of what clients have written for the cloud: they are not dropped when a file is
	// begun anew.
	Unsent []string
	// Opened is called after each attempt to open the store, with its error, and Committed
	// after each commit.
	Opened    func(*store.Store, error)
	Committed func(writeback.CommitStats)
}

// Open opens the store. If that fails (on a full or read-only disk, for example), the cache
// works in memory, within limits, and Run tries to open it again. Only ErrLocked and ErrKey,
// which an administrator has to fix, are returned.
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
	d.store = s
	d.writer = writeback.New(s, writeback.Options{
		MaxPending: MaxPending,
		Lost:       d.options.Lost,
		Committed:  d.committed,
	})
	return d, nil
}

// committed is called after each commit.
func (d *Disk) committed(c writeback.CommitStats) {
	d.failing.Store(c.Err != nil)
	if c.Err != nil && !errors.Is(c.Err, store.ErrReadOnly) { // that was logged when it was opened
		d.log.Warn("cache could not be written; what is new stays in memory, and is tried again", "folder", d.dir, "err", c.Err)
	}
	d.options.Committed(c)
}

// Run writes pending changes until ctx ends, and once more then. It always returns nil: the
// cache works in memory if it cannot write.
func (d *Disk) Run(ctx context.Context) error {
	if d.openErr != nil && !d.openLate(ctx) {
		d.log.Error("cache could not be opened; what was read is lost", "folder", d.dir, "err", d.openErr)
		return nil
	}
	s, w := d.Now()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.Run(ctx) })
	g.Go(func() error { return s.Run(ctx) })
	if err := errors.Join(g.Wait(), s.Close()); err != nil {
		d.log.Error("cache was not written to its end; what is missing is read again from the cloud", "folder", d.dir, "err", err)
	}
	return nil
}

// openLate tries to open the store until it succeeds. It returns false when ctx has ended.
func (d *Disk) openLate(ctx context.Context) bool {
	for wait := FirstReopen; ; wait = min(2*wait, LastReopen) {
		for d.options.Wait() {
			if !pause.Sleep(ctx, FirstReopen) {
				return false
			}
		}
		s, err := store.Open(d.dir, d.options.Store)
		d.options.Opened(s, err)
		if err == nil {
			d.use(s)
			return true
		}
		d.log.Error("cache cannot be opened; it is tried again", "folder", d.dir, "in", wait, "err", err)
		if !pause.Sleep(ctx, wait) {
			return false
		}
	}
}

// use takes a store that was opened late. What it drops is gone with the first commit, which writes what
// waits: until then the file is as it was.
func (d *Disk) use(s *store.Store) {
	views, keys := s.Contents()
	anew := len(views) == 0 || d.options.HasState()
	d.writer.Use(s, func() { // a writer takes no drop of what its store does not have
		if anew {
			d.drop(views, keys)
		} else {
			d.writer.Yield(s.Has) // its salts are those of what it has
		}
	})
	d.mu.Lock()
	d.store, d.openErr = s, nil
	d.mu.Unlock()
	if anew {
		d.log.Warn("cache is open; it begins anew with what was read meanwhile, and the rest is read again from the cloud", "folder", d.dir)
		return
	}
	d.log.Info("cache is open, and is read", "folder", d.dir)
	d.options.Load()
}

// drop drops the contents of a file. The IDs of its views and most keys of its tables are hashes with another salt
// than those that wait.
func (d *Disk) drop(views []store.ID, keys []store.Pair) {
	for _, id := range views {
		d.Change(&store.Change{ID: id, Op: store.Drop})
	}
	for _, pair := range keys {
		if _, waits := d.writer.Get(pair.Table, pair.Key); !waits && !slices.Contains(d.options.Unsent, pair.Table) {
			_ = d.Put(pair) // the names are valid
		}
	}
}

// Close closes a disk without Run.
func (d *Disk) Close() error {
	s, _ := d.Now()
	return s.Close()
}

// IsReadOnly reports whether the file system of the cache is read-only.
func (d *Disk) IsReadOnly() bool {
	s, _ := d.Now()
	return s.IsReadOnly()
}

// IsFailing reports whether the last commit failed.
func (d *Disk) IsFailing() bool { return d.failing.Load() }

// Clock returns the time for views, in seconds.
func (d *Disk) Clock() time.Time { return time.Now().UTC().Truncate(time.Second) }

// Now returns the store, which changes when the file is opened late, and its writer.
func (d *Disk) Now() (*store.Store, *writeback.Writer) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.store, d.writer
}

// Change queues a change of a view. It does no I/O.
func (d *Disk) Change(c *store.Change) {
	_, w := d.Now()
	if err := w.Change(*c); err != nil {
		d.options.Lost(c.ID, err)
	}
}

// Get returns the value of a key in a table, also if it is not on disk yet, or
// store.ErrNotFound, also while the store cannot be opened.
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

// Keys returns the keys of a table that are on disk, in order.
func (d *Disk) Keys(table string) ([]string, error) {
	s, _ := d.Now()
	keys, err := s.Keys(table)
	if errors.Is(err, store.ErrClosed) {
		return nil, nil
	}
	return keys, err
}

// CheckTable returns an error for a table that is damaged on disk, or has lost keys. See
// store.CheckTable.
func (d *Disk) CheckTable(table string) error {
	s, _ := d.Now()
	if err := s.CheckTable(table); !errors.Is(err, store.ErrClosed) {
		return err
	}
	return nil
}

// Put queues new values of keys; they are on disk within about a second.
func (d *Disk) Put(pairs ...store.Pair) error {
	_, w := d.Now()
	return w.Put(pairs...)
}

// Flush writes what has been queued so far. If that fails, which is logged, it is tried again later.
func (d *Disk) Flush() {
	d.mu.RLock()
	isOpen := d.openErr == nil
	d.mu.RUnlock()
	if isOpen {
		_ = d.writer.Flush()
	}
}

// bootID identifies the current boot of the machine; it is empty if the kernel does not provide
// it.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// Intern returns the bytes of an object that is given in two parts: those that another client
// has just read, or else a copy.
func (d *Disk) Intern(sum store.Sum, head string, rest []byte) []byte {
	if b := d.Interned.Take(sum); b != nil {
		return b
	}
	b := append(append(make([]byte, 0, len(head)+len(rest)), head...), rest...)
	d.Interned.Put(sum, b)
	return b
}
