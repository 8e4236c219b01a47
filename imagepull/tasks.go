package imagepull

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/imagepull/job"
)

// wakeLocked tells all who wait that something has changed.
func (p *Puller) wakeLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// refreshLocked makes the tasks follow from the jobs: what nobody wants any more is
// cancelled and forgotten, what somebody wants is there.
func (p *Puller) refreshLocked(now time.Time) {
	wanted := map[string]bool{}
	for _, j := range p.jobs {
		for i := range j.Images {
			wanted[j.Images[i].Name] = wanted[j.Images[i].Name] || !j.Cancelled
		}
	}
	for name, t := range p.tasks {
		switch {
		case wanted[name]:
		case t.running:
			t.cancel() // forgotten when it has ended
		default:
			delete(p.tasks, name)
			select {
			case p.dropped <- struct{}{}:
			default: // hold has not heard of the one before yet
			}
		}
	}
	for _, j := range p.sortedLocked() {
		if j.Cancelled {
			continue
		}
		for i := range j.Images {
			p.addTaskLocked(j, &j.Images[i], now)
		}
	}
	p.wakeLocked()
}

func (p *Puller) addTaskLocked(j *job.Job, w *job.Image, now time.Time) {
	t := p.tasks[w.Name]
	if t == nil {
		t = &task{name: w.Name, image: w.Image, due: now}
		if j.Unasked && p.opts.Jitter > 0 {
			t.due = now.Add(rand.N(p.opts.Jitter))
		}
		p.tasks[w.Name] = t
	}
	if t.ready == nil && w.Ready != nil {
		t.ready = w.Ready
		t.progress = engineapi.Progress{Done: w.Ready.Size, Total: w.Ready.Size}
	}
}

// sortedLocked returns the jobs in the order in which they were asked for.
func (p *Puller) sortedLocked() []*job.Job {
	jobs := make([]*job.Job, 0, len(p.jobs))
	for _, j := range p.jobs {
		jobs = append(jobs, j)
	}
	slices.SortFunc(jobs, func(a, b *job.Job) int {
		return cmp.Or(a.Requested.Compare(b.Requested), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	return jobs
}

// take returns the task of a kind whose turn it is, as soon as there is one. What is
// done for it has to end with the context, and by finish. It returns nil when ctx ends.
func (p *Puller) take(ctx context.Context, of kind) (*task, context.Context) {
	for ctx.Err() == nil {
		p.mu.Lock()
		now := time.Now()
		t, due := p.nextLocked(of, now)
		changed := p.changed
		if t != nil {
			p.overdue = t.isOverdue(now)
			within, cancel := context.WithCancel(ctx)
			t.running, t.cancel = true, cancel
			p.wakeLocked()
			p.mu.Unlock()
			return t, within
		}
		p.mu.Unlock()
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
func (p *Puller) nextLocked(of kind, now time.Time) (next *task, soonest time.Time) {
	var first turn
	for _, j := range p.sortedLocked() {
		if j.Cancelled {
			continue
		}
		failing := p.failingLocked(j)
		for i := range j.Images {
			t := p.tasks[j.Images[i].Name]
			switch {
			case t == nil || !of(t) || p.releasing[t.name]:
			case !t.due.After(now):
				if turn := p.turnLocked(t, failing, now); next == nil || turn.precedes(first) {
					next, first = t, turn
				}
			case soonest.IsZero() || t.due.Before(soonest):
				soonest = t.due
			}
		}
	}
	return next, soonest
}

// after returns a channel that tells when t has come; never, if t is zero.
func after(t time.Time) <-chan time.Time {
	if t.IsZero() {
		return nil
	}
	return time.After(time.Until(t))
}
