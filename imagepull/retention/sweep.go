package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

const (
	// CheckInterval is how often images that are ready are checked, besides when containerd
	// reports that one was removed.
	CheckInterval = 5 * time.Minute
	// RetryInterval is when a sweep is repeated that failed because containerd was away.
	RetryInterval = 10 * time.Second
)

// runSweeps keeps the images that jobs want, and releases all others that are held.
func (r *Retainer) runSweeps(ctx context.Context) {
	level := slog.LevelWarn
	recheck := time.NewTicker(CheckInterval)
	defer recheck.Stop()
	for ctx.Err() == nil {
		wait := CheckInterval
		switch err := r.sweep(ctx); {
		case err == nil && level == slog.LevelDebug:
			level = slog.LevelWarn
			r.Queue.Retry(engineapi.RuntimeUnavailable, time.Now()) // it is there again
		case err != nil && ctx.Err() == nil:
			// Once for each time: on a node that has no containerd this never ends.
			r.Logger.Log(ctx, level, "images that nobody waits for any more cannot be let go now; it is tried again", "err", err)
			level, wait = slog.LevelDebug, RetryInterval
		}
		incomplete, expiry := !r.Complete(), r.nextExpiry(time.Now())
		if incomplete {
			wait = min(wait, RetryInterval)
		}
		if expiry > 0 {
			wait = min(wait, expiry)
		}
		select {
		case <-ctx.Done():
		case <-r.Queue.Dropped():
		case <-time.After(wait):
			if incomplete {
				r.Load()
			}
		case <-recheck.C:
			r.Queue.Recheck()
		}
	}
}

// sweep releases every image that is held, by this process or an earlier one, and that no
// job wants.
func (r *Retainer) sweep(ctx context.Context) error {
	retained, err := r.Engine.Retained(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range retained {
		if !r.claim(name) {
			continue
		}
		err := r.Engine.Release(ctx, name)
		r.Queue.Unclaim(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("image %s: %w", name, err))
			continue
		}
		r.Logger.Info("image is not held any more", "image", name)
	}
	return errors.Join(errs...)
}

// claim reports whether nobody wants the image, and keeps it from being pulled until
// Unclaim.
func (r *Retainer) claim(name string) bool {
	if !r.Complete() || !r.Queue.Claim(name) {
		return false
	}
	// A grace period starts before its job ends.
	if r.inGracePeriod(name, time.Now()) {
		r.Queue.Unclaim(name)
		return false
	}
	return true
}
