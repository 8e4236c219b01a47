package imagepull

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// take waits for the next image to pull. The pull must end when the returned context does, and be finished
// with finish. take returns nil when ctx ends.
func (q *queue) take(ctx context.Context) (*task, context.Context) {
	for ctx.Err() == nil {
		q.mu.Lock()
		t, due := q.nextLocked()
		if t != nil {
			t.attempts++
			q.busy[t.name] = true
			var within context.Context
			within, t.cancel = context.WithCancel(ctx)
			q.changedLocked()
			q.mu.Unlock()
			return t, within
		}
		changed := q.changed
		q.mu.Unlock()
		var later <-chan time.Time
		if !due.IsZero() {
			later = time.After(time.Until(due))
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-later:
		}
	}
	return nil, nil
}

// nextLocked returns the task whose turn it is, or nil and the time when one will be due. Images that fail must not delay
// one that can be pulled, so tasks that have not failed come first. Among each kind the one that has been due the longest
// does: those that fail take turns. Of equal turns, that of the older job comes first, and then
// that of the earlier container.
func (q *queue) nextLocked() (first *task, soonest time.Time) {
	now := time.Now()
	for _, j := range q.activeLocked() {
		for _, w := range j.Images {
			t := q.tasks[w.Name]
			switch {
			case t == nil || !t.needsPull() || q.busy[t.name]:
			case t.due.After(now):
				if soonest.IsZero() || t.due.Before(soonest) {
					soonest = t.due
				}
			case first == nil || cmp.Or(cmp.Compare(min(t.failures, 1), min(first.failures, 1)), t.due.Compare(first.due)) < 0:
				first = t
			}
		}
	}
	return first, soonest
}

// progress records the progress of a running pull.
func (q *queue) progress(t *task, p engineapi.Progress) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.ready == nil {
		t.progress = p
		q.wakeLocked()
	}
}

// finish ends the pull of a task that was taken. If its context has ended, the result is ignored, and finish
// returns false. An image that was ready before stays ready when a pull fails. isNew reports whether the
// attempt before did not fail for the same reason.
func (q *queue) finish(within context.Context, t *task, image engineapi.Image, failure *engineapi.Error) (whole, isNew bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	isNew = failure != nil && (t.failure == nil || t.failure.Reason != failure.Reason)
	if whole = within.Err() == nil; whole {
		t.tagMayHaveMoved = false
		switch {
		case failure == nil:
			t.setReady(&image, true)
		case t.ready == nil:
			t.failed(failure)
		case !t.checked:
			q.sweep()
		}
	}
	t.cancel()
	t.cancel = nil
	delete(q.busy, t.name)
	q.refreshLocked()
	return whole, isNew
}

// retryPod retries the failed images of a pod at once, ahead of others that fail, and resolves the tags of
// those that are ready again. The pull of an image whose name is among imported begins again, and no registry's wish to wait
// counts: it is not asked.
func (q *queue) retryPod(pod types.UID, imported []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range q.jobs[pod].Images {
		t, here := q.tasks[w.Name], slices.Contains(imported, w.Name)
		if t == nil || t.cancel != nil && !here {
			continue
		}
		if t.cancel != nil {
			t.cancel() // finish leaves it due
		}
		if here {
			t.notBefore = time.Time{}
		}
		t.failures = 0
		t.retryAt(time.Now())
		t.tagMayHaveMoved = t.ready != nil && !strings.Contains(w.Image, "@")
	}
	q.changedLocked()
}

// retry retries at a time all tasks whose last attempt failed for this reason, and begins their backoff anew.
func (q *queue) retry(reason engineapi.Reason, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.tasks {
		if t.failure != nil && t.failure.Reason == reason && t.cancel == nil {
			t.failures = min(t.failures, 1)
			t.retryAt(at)
		}
	}
	q.changedLocked()
}
