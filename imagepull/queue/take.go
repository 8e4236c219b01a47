package queue

import (
	"context"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// kind is what can be done for a task.
type kind func(*Task) bool

// toPull takes the registry, and as long as its line is thin.
func toPull(t *Task) bool {
	permanent := t.failure != nil && t.failure.Permanent
	return !t.running && !permanent && (t.ready == nil || t.tagMayHaveMoved && t.checked)
}

// toCheck takes containerd alone.
func toCheck(t *Task) bool { return !t.running && t.ready != nil && !t.checked }

// TakePull returns the task whose image is to be pulled next, as soon as there is one.
// The pull has to end with the context, and by Finish. TakePull returns nil when ctx ends.
func (q *Queue) TakePull(ctx context.Context) (*Task, context.Context) {
	t, within := q.take(ctx, toPull)
	if t != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		t.attempts++
		t.wasReady = t.ready != nil
	}
	return t, within
}

// TakeCheck is TakePull for images that were ready, and are to be found on the node again.
func (q *Queue) TakeCheck(ctx context.Context) (*Task, engineapi.Image, context.Context) {
	t, within := q.take(ctx, toCheck)
	if t == nil {
		return nil, engineapi.Image{}, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return t, *t.ready, within
}

func (q *Queue) take(ctx context.Context, of kind) (*Task, context.Context) {
	for ctx.Err() == nil {
		q.mu.Lock()
		now := time.Now()
		t, due := q.nextLocked(of, now)
		changed := q.changed
		if t != nil {
			q.overdue = t.isOverdue(now)
			within, cancel := context.WithCancel(ctx)
			t.running, t.cancel = true, cancel
			q.wakeLocked()
			q.mu.Unlock()
			return t, within
		}
		q.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-changed:
		case <-after(due):
		}
	}
	return nil, nil
}

// nextLocked returns the task of a kind whose turn it is, or else when one will be due.
// Between equal turns the older job decides, and then the order of the containers.
func (q *Queue) nextLocked(of kind, now time.Time) (next *Task, soonest time.Time) {
	var first turn
	for _, j := range q.sortedLocked() {
		if j.Cancelled {
			continue
		}
		failing := q.failingLocked(j)
		for i := range j.Images {
			t := q.tasks[j.Images[i].Name]
			switch {
			case t == nil || !of(t) || q.releasing[t.Name]:
			case !t.due.After(now):
				if turn := q.turnLocked(t, failing, now); next == nil || turn.precedes(first) {
					next, first = t, turn
				}
			case soonest.IsZero() || t.due.Before(soonest):
				soonest = t.due
			}
		}
	}
	return next, soonest
}

// after returns a channel with a message at t; without one, if t is zero.
func after(t time.Time) <-chan time.Time {
	if t.IsZero() {
		return nil
	}
	return time.After(time.Until(t))
}

// Progress notes how far the pull of a task is that was taken.
func (q *Queue) Progress(t *Task, p engineapi.Progress) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.ready == nil {
		t.progress = p
		q.wakeLocked()
	}
}

// Finish ends what TakePull or TakeCheck has begun: the outcome is noted, unless ctx, the
// context of the task, has ended. It reports whether it was noted.
func (q *Queue) Finish(ctx context.Context, t *Task, outcome Outcome) (whole bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if whole = ctx.Err() == nil; whole {
		outcome(t, time.Now())
	}
	t.cancel()
	t.running, t.cancel = false, nil
	q.refreshLocked(time.Now())
	return whole
}

// IsNewFailure reports whether a task that was taken has not failed for this reason the
// last time.
func (q *Queue) IsNewFailure(t *Task, reason engineapi.Reason) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return t.failure == nil || t.failure.Reason != reason
}
