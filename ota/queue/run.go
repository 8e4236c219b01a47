package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	// poll is how often it is looked at what is due: timers do not follow corrections of the wall
	// clock, and stand still while a machine is suspended.
	poll = 30 * time.Second
	// idle is the same while nothing waits: what has ended long ago is to be forgotten.
	idle = time.Hour
	// pace is the least time between two upgrades; the longest is twice that.
	pace = 100 * time.Millisecond
	// Upgrades that have ended are shown for keepFor, and no more than keepAtMost of them: a node has 110
	// pods, if its kubelet is not told otherwise.
	keepFor    = 7 * 24 * time.Hour
	keepAtMost = 200
)

// errNotNow is returned by begin.
var errNotNow = errors.New("the upgrade does not begin now")

// Wake has Run look at what is due. It does not block. It is called when pods or holds have changed.
func (q *Queue) Wake() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// CloudReturned has failed attempts repeated soon. It does not block.
func (q *Queue) CloudReturned() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for name, it := range q.items {
		q.items[name] = it.soon()
	}
	q.Wake()
}

// Run carries out upgrades by carryOut, one at a time, until ctx ends. carryOut is ota.API.Upgrade.
func (q *Queue) Run(ctx context.Context, carryOut func(context.Context, ota.Attempt) error) {
	for ctx.Err() == nil {
		it, left := q.due()
		wake := q.wake
		if it != nil {
			q.attempt(ctx, it, carryOut)
			wake, left = nil, pace+rand.N(pace)
		}
		q.expire()
		select {
		case <-ctx.Done():
		case <-wake:
		case <-time.After(left):
		}
	}
}

// due returns the first upgrade that is to be attempted now, or nil and how long to wait.
func (q *Queue) due() (*item, time.Duration) {
	wait, online := idle, q.Online()
	for _, it := range q.all() {
		if it.State.Final() {
			continue
		}
		if wait = min(wait, poll); !online {
			break
		}
		now, left, pod := q.now(), time.Until(it.retry), q.Pods.Get(it.pod())
		_, held := q.hold(it)
		switch {
		case it.State == api.InProgress, q.Pods.Synced() && it.contradicts(pod):
			// What became of it has to be found out, whatever the time.
		case held, q.Off, it.pulling(pod):
			continue
		default:
			left = it.wait(now)
		}
		if left <= 0 {
			return it, 0
		}
		wait = min(wait, left)
	}
	return nil, wait
}

// attempt makes one attempt, and keeps its result.
func (q *Queue) attempt(ctx context.Context, it *item, carryOut func(context.Context, ota.Attempt) error) {
	began := false
	err := carryOut(ctx, ota.Attempt{
		Pod: it.pod(), UID: types.UID(it.UID), Revision: it.Revision,
		Begin: func() error { err := q.begin(it); began = err == nil; return err },
	})
	q.disk.Lock()
	defer q.disk.Unlock()
	last := q.current(it)
	if last == nil {
		return // it was cancelled, or another took its place, before it began
	}
	begun := last.State == api.InProgress
	switch v := ota.VerdictOf(err); {
	case err == nil, v == ota.Gone && begun:
		q.end(last, api.Done, "")
	case v == ota.Gone, v == ota.Void:
		q.drop(last, err)
	case v == ota.Unknown, began && it.State == api.InProgress: // an earlier attempt may have deleted the pod
		q.set(last.failed(err))
	default:
		if begun { // the pod is there, and this attempt has not deleted it
			last = last.in(api.WaitingForCloud)
			q.write(last)
		}
		q.set(last.failed(err))
	}
}

// begin makes it durable that the pod's deletion may have been sent. It is the last moment at which
// the time, a hold, and whether the upgrade is still wanted, decide.
func (q *Queue) begin(it *item) error {
	q.disk.Lock()
	defer q.disk.Unlock()
	last, now := q.current(it), q.now()
	if last == nil || q.Off || last.next(now).After(now) {
		return errNotNow
	}
	if _, held := q.hold(last); held {
		return errNotNow
	}
	begun := last.in(api.InProgress)
	if err := q.files.Put(it.pod(), begun.entry); err != nil {
		return fmt.Errorf("the upgrade of pod %s waits, since its beginning could not be written down: %w", it.pod(), err)
	}
	q.set(begun)
	return nil
}

// current returns the item that stands for the same request as it, or nil if there is none that waits
// or is in progress. The caller holds q.disk.
func (q *Queue) current(it *item) *item {
	last := q.get(it.pod())
	if last == nil || last.State.Final() || !last.same(it) {
		return nil
	}
	return last
}

// drop ends an upgrade that does not apply any more. The caller holds q.disk.
func (q *Queue) drop(it *item, reason error) {
	q.end(it, api.Dropped, oneLine(reason))
	q.Event(&corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: it.Namespace, Name: it.Pod, UID: types.UID(it.UID),
	}, corev1.EventTypeWarning, "UpgradeDropped", "the queued upgrade to revision "+it.Revision+" does not apply any more: "+oneLine(reason))
}

// end ends an upgrade. The caller holds q.disk.
func (q *Queue) end(it *item, state api.UpgradeState, message string) {
	it = it.ended(state, message, q.Now())
	q.Logger.Info("a queued upgrade has ended", "pod", it.pod().String(), "uid", it.UID, "revision", it.Revision, "state", string(state), "message", message)
	q.write(it)
	q.set(it)
	q.Changed()
}

// write writes the file of an item whose loss does no harm: after a crash, the attempt is repeated.
func (q *Queue) write(it *item) {
	if err := q.files.Put(it.pod(), it.entry); err != nil {
		q.Logger.Error("the state of a queued upgrade was not written down: after a restart, it is found out again", "pod", it.pod().String(), "state", string(it.State), "err", err)
	}
}

// expire removes what has ended long ago, and the oldest if there is too much.
func (q *Queue) expire() {
	q.disk.Lock()
	defer q.disk.Unlock()
	now := q.now()
	var ended []*item
	for _, it := range q.all() {
		if it.State.Final() {
			ended = append(ended, it)
		}
	}
	slices.SortFunc(ended, func(a, b *item) int { return b.Ended.Compare(*a.Ended) }) // the latest first
	for i, it := range ended {
		if i < keepAtMost && now.Sub(*it.Ended) < keepFor {
			continue
		}
		if err := q.files.Delete(it.pod()); err != nil {
			q.Logger.Warn("an upgrade that has ended cannot be forgotten", "pod", it.pod().String(), "err", err)
			continue
		}
		q.mu.Lock()
		delete(q.items, it.pod())
		q.mu.Unlock()
	}
}

// oneLine joins the lines of an error.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
