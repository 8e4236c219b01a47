package imagepull

import (
	"context"
	"log/slog"
	"strings"
	"time"
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
	for ctx.Err() == nil {
		wait := checkEvery
		if err := p.sweep(ctx); err == nil {
			level = slog.LevelWarn
		} else if ctx.Err() == nil {
			// Once for each time: on a node that has no containerd this never ends.
			p.log.Log(ctx, level, "containerd cannot be asked which images are held ahead of upgrades; it is tried again", "err", err)
			level, wait = slog.LevelDebug, sweepRetry
		}
		select {
		case <-ctx.Done():
		case <-p.dropped:
		case <-time.After(wait):
			p.recheck(func(*task) bool { return true })
			p.review() // for jobs whose pods are gone
		}
	}
}

// removed has an image looked for that somebody has removed: kubelet, to make room,
// where containerd does not know that it is pinned.
func (p *Puller) removed(name string) {
	p.recheck(func(t *task) bool {
		return name == t.name || name == t.ready.ID || strings.HasSuffix(name, "@"+t.ready.Target.Digest.String())
	})
}

func (p *Puller) recheck(which func(*task) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.tasks {
		if t.ready != nil && t.checked && which(t) {
			t.checked, t.due = false, time.Now()
			p.wakeLocked()
		}
	}
}

// sweep lets go of every image that is held, by an earlier process perhaps, and that
// nobody wants.
func (p *Puller) sweep(ctx context.Context) error {
	held, err := p.engine.Held(ctx)
	if err != nil {
		return err
	}
	for _, name := range held {
		if !p.lock(name) {
			continue
		}
		err := p.engine.Release(ctx, name)
		p.unlock(name)
		if err != nil {
			return err
		}
		p.log.Info("image is not held any more", "image", name)
	}
	return nil
}

// lock reports whether nobody wants the image, and keeps it from being pulled until
// unlock.
func (p *Puller) lock(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tasks[name] != nil {
		return false
	}
	p.releasing[name] = true
	return true
}

func (p *Puller) unlock(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.releasing, name)
	p.wakeLocked()
}
