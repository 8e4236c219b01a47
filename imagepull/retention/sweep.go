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
	// CheckInterval is how often images that are ready are looked for, besides when
	// containerd says that one was removed.
	CheckInterval = 5 * time.Minute
	// RetryInterval is when letting go is tried again that containerd was not there for.
	RetryInterval = 10 * time.Second
)

// hold sees to it that what is wanted stays, and that nothing else is held.
func (r *Retainer) hold(ctx context.Context) {
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
		unread, lingers := !r.Complete(), r.nextLinger(time.Now())
		if unread {
			wait = min(wait, RetryInterval)
		}
		if lingers > 0 {
			wait = min(wait, lingers)
		}
		select {
		case <-ctx.Done():
		case <-r.Queue.Dropped():
		case <-time.After(wait):
			if unread {
				r.Load()
			}
		case <-recheck.C:
			r.Queue.Recheck()
		}
	}
}

// sweep lets go of every image that is held, by an earlier process perhaps, and that
// nobody wants.
func (r *Retainer) sweep(ctx context.Context) error {
	held, err := r.Engine.Held(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range held {
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
	// What lingers does so from before its job ends.
	if r.lingers(name, time.Now()) {
		r.Queue.Unclaim(name)
		return false
	}
	return true
}
