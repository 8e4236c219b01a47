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
	// CheckInterval is how often ready images are checked. They are also checked when containerd
	// reports a removal.
	CheckInterval = 5 * time.Minute
	// RetryInterval is when a sweep is repeated that failed because containerd was away.
	RetryInterval = 10 * time.Second
)

// runSweeps sweeps when images are no longer wanted, and has ready images checked.
func (r *Retainer) runSweeps(ctx context.Context) {
	level := slog.LevelWarn
	recheck := time.NewTicker(CheckInterval)
	defer recheck.Stop()
	for ctx.Err() == nil {
		wait := CheckInterval
		switch err := errors.Join(r.keepOthers(ctx), r.sweep(ctx)); {
		case err == nil && level == slog.LevelDebug:
			level = slog.LevelWarn
			r.Queue.Retry(engineapi.RuntimeUnavailable, time.Now()) // containerd is back
		case err != nil && ctx.Err() == nil:
			// One warning until a sweep succeeds: a node may have no containerd at all.
			r.Logger.Log(ctx, level, "images cannot be retained or let go now; it is tried again", "err", err)
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
		case <-r.othersChanged:
		case <-time.After(wait):
			if incomplete {
				r.Load()
			}
		case <-recheck.C:
			r.Queue.Recheck()
		}
	}
}

// sweep releases every retained image that no job and none of Others wants, also those of earlier processes.
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

// claim reports whether the image can be released. If so, it is not pulled before Unclaim.
func (r *Retainer) claim(name string) bool {
	if !r.Complete() || !r.Queue.Claim(name) {
		return false
	}
	// After Claim, because a grace period starts before its job ends.
	if r.inGracePeriod(name, time.Now()) || r.isOther(name) {
		r.Queue.Unclaim(name)
		return false
	}
	return true
}
