package imagepull

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

const (
	// checkInterval is how often ready images are checked. They are also checked when containerd
	// reports a removal.
	checkInterval = 5 * time.Minute
	// sweepRetry is when a sweep is repeated that failed because containerd was away.
	sweepRetry = 10 * time.Second
)

// runSweeps decides, until ctx ends, which images stay on the node: those that a job wants, those of former targets for
// gracePeriod, and others that the hub is asked to retain. All others that are retained, also by an earlier process, are
// released.
func (p *Puller) runSweeps(ctx context.Context) {
	level := slog.LevelWarn
	var again <-chan time.Time
	recheck := time.NewTicker(checkInterval)
	defer recheck.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-recheck.C:
			p.queue.recheck(func(*engineapi.Image) bool { return true })
			p.queue.sweep()
			continue
		case <-p.queue.sweepSoon: // also at the start
		case <-again:
		}
		again = nil
		switch err := errors.Join(p.keepOthers(ctx), p.checkReady(ctx), p.release(ctx)); {
		case err == nil && level == slog.LevelDebug:
			level = slog.LevelWarn
			p.queue.retry(engineapi.RuntimeUnavailable, time.Now()) // containerd is back
		case err != nil && ctx.Err() == nil:
			// One warning until a sweep succeeds: a node may have no containerd at all.
			p.Logger.Log(ctx, level, "images cannot be retained or let go now; it is tried again", "err", err)
			level, again = slog.LevelDebug, time.After(sweepRetry)
		}
	}
}

// removed is called when another program has removed containerd's record of this name: the kubelet, for
// example, if this containerd does not support pinning.
func (p *Puller) removed(name string) {
	p.queue.recheck(func(i *engineapi.Image) bool { return i.HasRecord(name) })
	if p.others.hasRecord(name) {
		p.queue.sweep()
	}
}

// release releases every retained image that nobody wants. While a job's file cannot be read, any of them may be wanted.
func (p *Puller) release(ctx context.Context) error {
	retained, err := p.Engine.Retained(ctx)
	if err != nil || p.files.Unread {
		return err
	}
	var errs []error
	for _, name := range retained {
		if p.others.isWanted(name) || !p.queue.claimUnwanted(name, true) {
			continue
		}
		err := p.Engine.Release(ctx, name)
		p.queue.unclaim(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("image %s: %w", name, err))
			continue
		}
		p.Logger.Info("image is not held any more", "image", name)
	}
	return errors.Join(errs...)
}

// checkReady looks whether images that were ready are still on the node, and retains them again. One that is not is
// pulled again, which will show why.
func (p *Puller) checkReady(ctx context.Context) error {
	for {
		image := p.queue.claimUnchecked()
		if image == nil {
			return nil
		}
		failure := engineapi.AsError(p.Engine.Keep(ctx, *image))
		p.queue.unclaim(image.Name)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case failure != nil && failure.Reason == engineapi.RuntimeUnavailable:
			return failure
		case failure == nil:
			p.queue.checked(image.Name, true)
		default:
			p.queue.checked(image.Name, false)
			p.Logger.Warn("image that was pulled ahead is not on the node any more, and is pulled again", "image", image.Name, "pods", p.podsOf(image.Name), "err", failure)
			p.saveWanting(image.Name)
		}
	}
}

// recheck has images that are ready checked soon.
func (q *queue) recheck(which func(*engineapi.Image) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.tasks {
		if t.ready != nil && t.checked && which(t.ready) {
			t.checked = false
			q.sweep()
		}
	}
}

// claimUnchecked returns an image that was ready and has to be checked, and which is not pulled before unclaim; nil if
// there is none.
func (q *queue) claimUnchecked() *engineapi.Image {
	q.mu.Lock()
	defer q.mu.Unlock()
	for name, t := range q.tasks {
		if t.ready != nil && !t.checked && !q.busy[name] {
			q.busy[name] = true
			return t.ready
		}
	}
	return nil
}

// checked records whether an image that was ready was found on the node. If not, it must be pulled.
func (q *queue) checked(name string, found bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.tasks[name]
	switch {
	case t == nil:
	case found:
		t.checked = true
	default:
		t.ready, t.progress, t.due = nil, engineapi.Progress{}, time.Now()
		q.changedLocked()
	}
}

// claimUnwanted reports whether no job wants an image, nor a former target in its grace period if that counts. The image is
// then not pulled before unclaim.
func (q *queue) claimUnwanted(name string, grace bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !time.Now().Before(q.grace[name]) {
		delete(q.grace, name)
	}
	if _, inGrace := q.grace[name]; q.tasks[name] != nil || grace && inGrace {
		return false
	}
	q.busy[name] = true
	return true
}

func (q *queue) unclaim(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.busy, name)
	q.wakeLocked()
}

// readyImage returns the image of that name that a job wants and that is on the node, or nil.
func (q *queue) readyImage(name string) *engineapi.Image {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.tasks[name]; t != nil {
		return t.ready
	}
	return nil
}

// isReady reports whether a job wants an image and it is on the node.
func (q *queue) isReady(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.tasks[name]
	return t != nil && t.ready != nil
}
