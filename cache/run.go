package cache

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/pause"
	"github.com/edgehub-io/edgehub/cache/view"
)

// Run writes the cache to disk, and handles returns of the cloud, until ctx ends. It returns
// nil.
func (c *Cache) Run(ctx context.Context) error {
	c.ran.Store(true)
	defer c.tasks.stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := c.disk.Run(ctx, c.openedLate); err != nil {
			c.log.Error("cache was not written to its end; what is missing is read again from the cloud", "err", err)
		}
		return nil
	})
	g.Go(func() error { return c.watchCloud(ctx) })
	g.Go(func() error { return c.writes.run(ctx) })
	g.Go(func() error {
		for pause.Sleep(ctx, view.SweepEvery) {
			c.pages.Sweep()
			c.views.EnforceLimit(nil) // views grow by events, too
			if c.isUp() {
				c.views.Sweep()
				c.sweepSecrets()
				c.repair()
			}
		}
		return nil
	})
	return g.Wait()
}

// isUp reports whether the node can reach an apiserver.
func (c *Cache) isUp() bool {
	select {
	case <-c.up.Lost(c.node):
		return false
	default:
		return true
	}
}

// maxRepairs is how many views repair has listed again until the next sweep: a full disk may have lost a thousand.
const maxRepairs = 60

// repair has clients list views again that were lost, or of which something is damaged on disk, while they are watched: one
// after the other until the next sweep.
func (c *Cache) repair() {
	isWanted := func(v *view.View) bool { return v.Lost() && c.views.Wanted(v) }
	lost := slices.DeleteFunc(c.views.All(), func(v *view.View) bool { return !isWanted(v) || v.Holders() == 0 })
	if len(lost) == 0 {
		return
	}
	lost = lost[:min(len(lost), maxRepairs)] // of All, and so in no order
	c.tasks.start(func(ctx context.Context) {
		for i, v := range lost {
			if i > 0 && !pause.Sleep(ctx, view.SweepEvery/time.Duration(len(lost))) {
				return
			}
			if isWanted(v) {
				v.Cut()
			}
		}
	})
}

// Close closes a Cache without Run. After Run it does nothing.
func (c *Cache) Close() error {
	if c.ran.Swap(true) {
		return nil
	}
	c.tasks.stop()
	return c.disk.Close()
}

// flush writes what waits, unless the file is not open.
func (c *Cache) flush() {
	if err := c.disk.Flush(); err != nil && !errors.Is(err, wal.ErrNotOpen) {
		c.log.Warn("cache could not be written; what is new stays in memory, and is tried again", "err", err)
	}
}

// watchCloud records each loss and return of the cloud, as seen by the node.
func (c *Cache) watchCloud(ctx context.Context) error {
	ctx = c.opts.AsNode(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.up.Lost(ctx):
		}
		c.outages.Lost()
		c.flush() // what clients have by now: a process after this one has to know what it is to take back
		c.derived.Lost()
		if err := c.up.WaitUp(ctx); err != nil {
			return nil //nolint:nilerr // it is ctx's
		}
		c.derived.Returned()
	}
}
