package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/cache/answer"
	"github.com/edgehub-io/edgehub/cache/derived"
	"github.com/edgehub-io/edgehub/cache/identity"
	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/spool"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/watch"
)

// Upstream sends requests to the apiservers.
type Upstream interface {
	http.RoundTripper
	// WaitUp returns nil as soon as the user of a request with ctx can reach an apiserver,
	// or ctx's error. An apiserver that refuses the node counts as unreachable for it.
	WaitUp(ctx context.Context) error
	// Lost returns a channel that is closed while the user of a request with ctx can reach
	// none. After a return the caller must get a new one.
	Lost(ctx context.Context) <-chan struct{}
	// IsUndecided reports whether it is not known yet, after the start, if the user of a
	// request with ctx can reach an apiserver.
	IsUndecided(ctx context.Context) bool
}

// Options of a Cache.
type Options struct {
	// Unreachable reports whether an error of Upstream means that no apiserver could be
	// reached, and none has executed the request. Required.
	Unreachable func(error) bool
	// IsNode reports whether a request carries the node's identity. Required.
	IsNode func(context.Context) bool
	// AsNode makes requests carry the node's identity. Required.
	AsNode func(context.Context) context.Context
	// Peer returns the other end of a request's connection; see identity.Options.
	Peer func(context.Context) string
	// NodeName is the node whose kubelet this cache serves. Required.
	NodeName string

	// Withheld returns why nothing may be answered from the cache, or "". Nil: everything may.
	Withheld func() string
	// AwaitMaySend returns nil as soon as what clients have written for the cloud may be sent there, or
	// ctx's error. Nil: it may whenever the cloud can be reached.
	AwaitMaySend func(ctx context.Context) error

	// PodServers are the addresses at which pods reach the hub, at most one of each family. While
	// the cloud is away, the EndpointSlice of the apiservers leads there. Without any, it stays.
	PodServers []netip.AddrPort

	// MaxBytes bounds the size of the cache; the default is 256 MiB.
	MaxBytes int64
	// Key encrypts the store file with AES-256. Without a key nothing is encrypted.
	Key []byte
	// TokenGrace is how long after its expiry a bearer token is accepted while the cloud is
	// away; 0 is the whole outage.
	TokenGrace time.Duration
	// AuthorizationTTL is how long offline the results of the node's TokenReviews and
	// SubjectAccessReviews are repeated; 0 denies all of them.
	AuthorizationTTL time.Duration
	// ReconnectJitter is the time over which watches are resumed after an outage; 0 resumes
	// them at once.
	ReconnectJitter time.Duration
	// SpoolCount and SpoolBytes bound the Events that wait for the cloud; the defaults are
	// those of spool.Options, negative values disable the spool.
	SpoolCount int
	SpoolBytes int64

	// Registerer registers the cache's metrics. Required.
	Registerer prometheus.Registerer
	// Logger is required.
	Logger *slog.Logger
}

// defaultMaxBytes holds several times 10,000 pods. Other hubs, such as yurthub, have no
// limit.
const defaultMaxBytes = 256 << 20

// Cache is an http.RoundTripper between the node's clients and the apiservers.
// See the package's comment.
type Cache struct {
	up       Upstream
	opts     Options
	disk     *wal.Log
	views    *view.Views
	logState *view.LogState // of views
	tokens   *identity.Tokens
	pages    *view.Pages
	writes   *writes
	offline  *answer.Answerer
	metrics  *metrics
	log      *slog.Logger
	derived  *derived.Objects

	watches *watch.Watches
	outages watch.Outages
	contact contact

	restored func() // nil: nobody else wants to know

	// present is how long the cloud and kubelet were there since sweepSecrets last dropped some;
	// its goroutine alone uses it.
	present time.Duration

	node  context.Context // carries the node's identity
	tasks *tasks          // end with Run
	ran   atomic.Bool
}

// Open opens the cache in a folder, which it creates if necessary. A folder that cannot be opened is tried again by Run. The errors
// are log.ErrLocked, log.ErrKey, and those of its options. The caller must call Run or Close.
func Open(dir string, up Upstream, opts Options) (*Cache, error) {
	if opts.Withheld == nil {
		opts.Withheld = func() string { return "" }
	}
	if opts.AwaitMaySend == nil {
		opts.AwaitMaySend = func(context.Context) error { return nil }
	}
	if opts.MaxBytes == 0 {
		opts.MaxBytes = defaultMaxBytes
	}
	m := newMetrics()
	disk, err := wal.New(dir, wal.Options{
		Key: opts.Key, Logger: opts.Logger, MaxPending: view.MaxPending, Keep: []string{spool.Table, derived.TableNodePatches},
		Committed: m.committed,
	})
	if err != nil {
		return nil, err
	}
	c := newCache(up, opts, m, disk)
	err = disk.Open(c.logState)
	switch {
	case errors.Is(err, wal.ErrLocked), errors.Is(err, wal.ErrKey):
		return nil, err
	case err != nil:
		c.log.Error("cache cannot be opened; until it can, what is read is kept in memory only", "folder", dir, "err", err)
	}
	if err := c.opened(true, err); err != nil {
		return nil, errors.Join(fmt.Errorf("open cache: %w", err), disk.Close())
	}
	opts.Registerer.MustRegister(m.all, prometheus.CollectorFunc(c.collect))
	return c, nil
}

// Erase overwrites and removes the files of a cache, which belongs to another cluster or node. Its errors are log.ErrLocked, and those
// of a folder that cannot be written.
func Erase(dir string) error { return wal.Erase(dir) }

// newCache connects the parts, each after those that it uses. Nothing is read yet.
func newCache(up Upstream, opts Options, m *metrics, disk *wal.Log) *Cache {
	c := &Cache{
		up: up, opts: opts, metrics: m, log: opts.Logger, tasks: newTasks(), node: opts.AsNode(context.Background()),
		disk: disk, pages: view.NewPages(),
	}
	c.views = view.New(view.Options{
		Disk: disk, Max: opts.MaxBytes, Log: c.log,
		Evicted: m.evictions.Inc, StoreRestored: c.storeRestored, Damaged: c.damaged,
	})
	c.logState = view.NewLogState(c.views)
	c.derived = derived.New(derived.Options{
		Views: c.views, File: disk, Node: opts.NodeName, APIServer: opts.PodServers,
		IsUp: c.isUp, Jitter: opts.ReconnectJitter, Log: c.log,
	})
	c.offline = answer.New(answer.Options{Views: c.views, Derived: c.derived})
	c.tokens = identity.New(identity.Options{
		Upstream: up, AsNode: opts.AsNode, Peer: opts.Peer, Background: c.tasks.start,
		Table: disk.Table("tokens"), Grace: opts.TokenGrace, Logger: c.log,
		Refused: func(token, userName string) { c.writes.answers.Refused(token, userName) }, // its answers are about tokens
	})
	c.watches = watch.New(watch.Options{
		Up: up, Views: c.views, Derived: c.derived, Outages: &c.outages, Jitter: opts.ReconnectJitter,
		Log: c.log, Background: c.tasks.start, SameUser: c.sameUser, Expired: m.expired.Inc,
	})
	c.writes = newWrites(c)
	return c
}

// opened reads what the parts have on disk, after an attempt to open the file: of a file that was begun anew from memory, only
// what was kept of the one before.
func (c *Cache) opened(all bool, attempt error) error {
	if c.metrics.opened(attempt); attempt == nil {
		c.logState.Opened()
	}
	err := errors.Join(c.writes.events.Load(), c.derived.Load())
	if all {
		err = errors.Join(err, c.tokens.Load(), c.writes.answers.Load(c.disk.Table(tableAnswers)))
	}
	return err
}

// openedLate is called after each attempt of Run to open the file.
func (c *Cache) openedLate(replayed bool, attempt error) {
	if attempt != nil {
		c.metrics.opened(attempt)
		return
	}
	if err := c.opened(replayed, nil); err != nil {
		c.log.Error("cache cannot be read; it begins anew", "err", err)
	}
	c.tasks.start(func(ctx context.Context) { // what the file has waits no longer, if the cloud is there
		if c.up.WaitUp(c.opts.AsNode(ctx)) == nil && c.opts.AwaitMaySend(ctx) == nil {
			c.writes.replay(ctx)
		}
	})
}

// OnStoreRestored has f called when the apiserver's store was restored from a backup, before clients read what it has; not that of events,
// or of an aggregated apiserver. It is called before Run; f must not call the cache.
func (c *Cache) OnStoreRestored(f func()) { c.restored = f }

func (c *Cache) storeRestored(of query.UserResource) {
	c.outages.Restored()
	if c.restored != nil && of.VersionSpace() == "" {
		c.restored()
	}
}

// damaged is called for damage on disk.
func (c *Cache) damaged(err error) {
	c.metrics.damaged.Inc()
	c.log.Warn("a part of the cache was damaged on disk: it is missing until it is read again from the cloud", "err", err)
}

// ViewState describes a view for operators, without its contents.
type ViewState = view.Description

// State describes all stored views, ordered by user and resource.
func (c *Cache) State() []ViewState { return c.views.Describe() }

// Health describes the cache for people: how many queries it answers, the bytes of its file, and why what
// is new is not on disk; "" if it is.
func (c *Cache) Health() (views int, bytes int64, trouble string) {
	err := c.disk.Trouble()
	switch {
	case errors.Is(err, wal.ErrNotOpen):
		trouble = "the cache is in memory only: its file cannot be opened"
	case errors.Is(err, wal.ErrReadOnly):
		trouble = "what is new is in memory only: the file system of the cache is read-only; does dmesg show errors of the disk?"
	case err != nil:
		trouble = "what is new is in memory only: the cache's file cannot be written; is the disk full?"
	}
	return len(c.views.All()), c.disk.Stats().FileBytes, trouble
}
