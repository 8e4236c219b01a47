package imagepull

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

const (
	// checkEvery is how often images that are ready are looked for, besides when
	// containerd says that one was removed.
	checkEvery = 5 * time.Minute
	// sweepRetry is when letting go is tried again that containerd was not there for.
	sweepRetry = 10 * time.Second
)

// hold sees to it that what is wanted stays, and that nothing else is held.
func (p *Puller) hold(ctx context.Context) {
	level := slog.LevelWarn
	recheck := time.NewTicker(checkEvery)
	defer recheck.Stop()
	for ctx.Err() == nil {
		wait := checkEvery
		switch err := p.sweep(ctx); {
		case err == nil && level == slog.LevelDebug:
			level = slog.LevelWarn
			p.queue.Retry(engineapi.RuntimeUnavailable, time.Now()) // it is there again
		case err != nil && ctx.Err() == nil:
			// Once for each time: on a node that has no containerd this never ends.
			p.log.Log(ctx, level, "images that nobody waits for any more cannot be let go now; it is tried again", "err", err)
			level, wait = slog.LevelDebug, sweepRetry
		}
		unread, lingers := p.waiting(time.Now())
		if unread {
			wait = min(wait, sweepRetry)
		}
		if lingers > 0 {
			wait = min(wait, lingers)
		}
		select {
		case <-ctx.Done():
		case <-p.queue.Dropped():
		case <-time.After(wait):
			if unread {
				p.load()
			}
		case <-recheck.C:
			p.queue.Recheck()
			p.review() // for jobs whose pods are gone
		}
	}
}

// waiting reports whether there is something left to be read, and how long the next
// image lingers that does; 0 is none.
func (p *Puller) waiting(now time.Time) (unread bool, lingers time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, until := range p.lingering {
		left := until.Sub(now)
		if left <= 0 {
			delete(p.lingering, name)
			left = time.Millisecond // it can be let go now
		}
		if lingers == 0 || left < lingers {
			lingers = left
		}
	}
	return p.unread, lingers
}

// CloudReturned is to be called when the cloud can be reached again: pods are told
// what they could not be told before, and registries, which often are behind the
// same line, are asked again.
func (p *Puller) CloudReturned() {
	p.conditions.CloudReturned()
	p.queue.Retry(engineapi.Unreachable, time.Now().Add(rand.N(returnJitter)))
}

// returnJitter keeps nodes that come back together from asking a registry at once.
const returnJitter = 5 * time.Second

// sweep lets go of every image that is held, by an earlier process perhaps, and that
// nobody wants.
func (p *Puller) sweep(ctx context.Context) error {
	held, err := p.engine.Held(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range held {
		if !p.claim(name) {
			continue
		}
		err := p.engine.Release(ctx, name)
		p.queue.Unclaim(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("image %s: %w", name, err))
			continue
		}
		p.log.Info("image is not held any more", "image", name)
	}
	return errors.Join(errs...)
}

// claim reports whether nobody wants the image, and keeps it from being pulled until
// Unclaim.
func (p *Puller) claim(name string) bool {
	if !p.complete() || !p.queue.Claim(name) {
		return false
	}
	// What lingers does so from before its job ends.
	if p.lingers(name, time.Now()) {
		p.queue.Unclaim(name)
		return false
	}
	return true
}

func (p *Puller) complete() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.unread
}

func (p *Puller) lingers(name string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until, ok := p.lingering[name]; ok && now.Before(until) {
		return true
	}
	delete(p.lingering, name)
	return false
}
