package queue

import (
	"context"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// TakePull waits for the next task to pull. The pull must end when the returned context does,
// and be finished with Finish. TakePull returns nil when ctx ends.
func (q *Queue) TakePull(ctx context.Context) (*Task, context.Context) {
	return q.take(ctx, (*Task).needsPull)
}

// TakeCheck is like TakePull for images that were ready and must be found on the node again.
func (q *Queue) TakeCheck(ctx context.Context) (*Task, context.Context) {
	return q.take(ctx, (*Task).needsCheck)
}

func (q *Queue) take(ctx context.Context, needed func(*Task) bool) (*Task, context.Context) {
	for ctx.Err() == nil {
		q.mu.Lock()
		now := time.Now()
		t, due := q.nextLocked(needed, now)
		if t != nil {
			q.overdue = t.isOverdue(now)
			if t.needsPull() {
				t.attempts++
				t.wasReady = t.ready != nil
			}
			within, cancel := context.WithCancel(ctx)
			t.running, t.cancel = true, cancel
			q.wakeLocked()
			q.mu.Unlock()
			return t, within
		}
		changed := q.changed
		q.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-changed:
		case <-after(due):
		}
	}
	return nil, nil
}

// nextLocked returns the task whose turn it is, or nil and the time when one will be due. Of
// equal turns, that of the older job comes first, and then that of the earlier container.
func (q *Queue) nextLocked(needed func(*Task) bool, now time.Time) (next *Task, soonest time.Time) {
	var first turn
	for _, j := range q.sortedLocked() {
		if j.Cancelled {
			continue
		}
		failing := q.failingLocked(j)
		for i := range j.Images {
			t := q.tasks[j.Images[i].Name]
			switch {
			case t == nil || !needed(t) || q.releasing[t.Name]:
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

// after returns a channel that receives a message at t, or never if t is zero.
func after(t time.Time) <-chan time.Time {
	if t.IsZero() {
		return nil
	}
	return time.After(time.Until(t))
}

// Progress records the progress of a running pull.
func (q *Queue) Progress(t *Task, p engineapi.Progress) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.ready == nil {
		t.progress = p
		q.wakeLocked()
	}
}

// Finish ends what TakePull or TakeCheck has begun. If ctx, the task's context, has ended, the
// outcome is ignored and Finish returns false.
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

// IsNewFailure reports whether the attempt before the running one did not fail for this reason.
func (q *Queue) IsNewFailure(t *Task, reason engineapi.Reason) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return t.failure == nil || t.failure.Reason != reason
}
