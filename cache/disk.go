package cache

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/edgehub-io/edgehub/cache/store"
)

// maxPending bounds the bytes that wait for the disk. A list of 10,000 pods fits
// in; where a disk is so slow that more waits, views are given up.
const maxPending = 64 << 20

// firstReopen and lastReopen bound the time between two attempts to open a store
// that cannot be opened.
const (
	firstReopen = 2 * time.Second
	lastReopen  = time.Minute
)

// disk is the store and its writer. When the file turns out to be damaged it is
// closed and opened again, which restores a snapshot or begins anew; whoever
// holds something in memory that the file held is told by reset.
//
// It is safe for concurrent use.
type disk struct {
	dir     string
	options store.Options
	metrics *metrics
	log     *slog.Logger
	lost    func(store.ID, error) // see store.WriterOptions
	reset   func()
	wait    func() bool // not now; see Cache.wait
	failing atomic.Bool // the last commit

	shared shared
	seed   maphash.Seed // of entry.quick
	boot   string       // see bootID

	mu      sync.RWMutex
	store   *store.Store // never nil; closed between two openings
	writer  *store.Writer
	openErr error // of the last attempt to open it, while it is not open
}

// openDisk opens the store. Where the machine does not let it be opened (a full or
// read-only disk, say), the node is served all the same: what is read stays in
// memory, within bounds, and opening is tried again. Errors are ErrLocked and
// ErrKey, which a person has to put right.
func openDisk(dir string, options store.Options, m *metrics, log *slog.Logger) (*disk, error) {
	d := &disk{dir: dir, options: options, metrics: m, log: log, seed: maphash.MakeSeed(), boot: bootID()}
	s, err := store.Open(dir, options)
	switch {
	case errors.Is(err, store.ErrLocked), errors.Is(err, store.ErrKey):
		return nil, fmt.Errorf("open cache: %w", err)
	case err != nil:
		s, d.openErr = store.Absent(), err
		log.Error("cache cannot be opened; until it can, what is read is kept in memory only", "folder", dir, "err", err)
	}
	m.opened(s, err)
	d.store, d.writer = s, d.newWriter(s)
	return d, nil
}

func (d *disk) newWriter(s *store.Store) *store.Writer {
	return store.NewWriter(s, store.WriterOptions{
		MaxPending: maxPending,
		Lost:       func(id store.ID, err error) { d.lost(id, err) },
		Committed:  d.committed,
	})
}

// largeCommit is the size, in bytes, of a commit that leaves so much garbage, its
// own and that of the lists before it, that it is given back to the machine at
// once: a hub that is quiet afterwards would keep it for minutes. That takes some
// milliseconds, in which nobody waits.
const largeCommit = 4 << 20

// committed is told of each commit.
func (d *disk) committed(c store.CommitStats) {
	if c.Bytes > largeCommit {
		defer debug.FreeOSMemory()
	}
	result := "ok"
	d.failing.Store(c.Err != nil)
	if c.Err != nil {
		result = "error"
		d.log.Warn("cache could not be written; what is new stays in memory, and is tried again", "folder", d.dir, "err", c.Err)
	} else {
		d.metrics.commitBytes.Add(float64(c.Bytes))
	}
	d.metrics.commits.WithLabelValues(result).Inc()
	d.metrics.commitSeconds.Observe(c.Duration.Seconds())
}

// run writes what is collected until ctx ends, and once more. It returns nil:
// the node is served also where nothing can be written any more.
func (d *disk) run(ctx context.Context) error {
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

func (d *disk) runOnce(ctx context.Context) error {
	s, w := d.now()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.Run(ctx) })
	g.Go(func() error { return s.Run(ctx) })
	return g.Wait()
}

// reopen opens the store again, however long that takes. It returns false when
// ctx has ended.
func (d *disk) reopen(ctx context.Context, absent bool) bool {
	for wait := firstReopen; ; wait = min(2*wait, lastReopen) {
		for absent && d.wait() {
			if !sleep(ctx, firstReopen) {
				return false
			}
		}
		s, err := store.Open(d.dir, d.options)
		d.metrics.opened(s, err)
		if err == nil {
			d.mu.Lock()
			d.store, d.writer, d.openErr = s, d.newWriter(s), nil
			d.mu.Unlock()
			d.failing.Store(false)
			d.reset()
			d.log.Info("cache is open again", "folder", d.dir)
			return true
		}
		d.log.Error("cache cannot be opened; it is tried again", "folder", d.dir, "in", wait, "err", err)
		if !sleep(ctx, wait) {
			return false
		}
	}
}

// clock is the time as it is noted in views: to the second.
func (d *disk) clock() time.Time { return time.Now().UTC().Truncate(time.Second) }

func (d *disk) now() (*store.Store, *store.Writer) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.store, d.writer
}

// change takes over a change of a view. It does no I/O.
func (d *disk) change(c *store.Change) {
	_, w := d.now()
	if err := w.Change(*c); err != nil {
		d.lost(c.ID, err)
	}
}

// Get returns the value of a key in a table, also where it is not on disk yet, or
// store.ErrNotFound: where the store cannot be opened, too.
func (d *disk) Get(bucket, key string) ([]byte, error) {
	s, w := d.now()
	if value, ok := w.Get(bucket, key); ok {
		if value == nil {
			return nil, store.ErrNotFound
		}
		return value, nil
	}
	value, err := s.Get(bucket, key)
	if errors.Is(err, store.ErrClosed) {
		return nil, store.ErrNotFound
	}
	return value, err
}

// Range calls fn for each key of a table that is on disk.
func (d *disk) Range(bucket, from string, fn func(key string, value []byte) error) error {
	s, _ := d.now()
	if err := s.Range(bucket, from, fn); !errors.Is(err, store.ErrClosed) {
		return err
	}
	return nil
}

// checkTable reports a table of which something on disk is damaged, or was lost. See
// store.CheckTable.
func (d *disk) checkTable(bucket string) error {
	s, _ := d.now()
	if err := s.CheckTable(bucket); !errors.Is(err, store.ErrClosed) {
		return err
	}
	return nil
}

// Put takes over new values of keys; they are on disk within a second or so.
func (d *disk) Put(pairs ...store.Pair) error {
	_, w := d.now()
	return w.Put(pairs...)
}

// errStopReading ends a read early.
var errStopReading = errors.New("nobody reads on")
