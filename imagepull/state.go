package imagepull

import (
	"context"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// stateLocked returns the state of a job that has not ended.
func (q *queue) stateLocked(j *job) api.ImagePull {
	s := api.ImagePull{
		Namespace: j.Namespace, Pod: j.Pod, UID: string(j.UID), Revision: j.Revision,
		Requested: j.Requested,
	}
	count := map[api.PullState]int{}
	for _, w := range j.Images {
		i := api.Image{Image: w.Image, State: api.Queued}
		if t := q.tasks[w.Name]; t != nil {
			i = t.state(w.Image, j.Namespace)
		}
		count[i.State]++
		s.Images = append(s.Images, i)
	}
	switch {
	case count[api.Ready] == len(j.Images):
		s.State = api.Ready
	case count[api.Pulling] > 0:
		s.State = api.Pulling
	case count[api.Queued] > 0:
		s.State = api.Queued
	default:
		s.State = api.Failed
	}
	return s
}

// state returns the state of a job, which may have ended, and whether that state is final.
func (q *queue) state(j *job) (state api.ImagePull, final bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if j.last != nil {
		return *j.last, true
	}
	state = q.stateLocked(j)
	return state, state.State == api.Ready || isTerminal(state)
}

// jobWithState returns the job of a pod, perhaps a cancelled one, or nil, and the state of one that is not cancelled.
func (q *queue) jobWithState(pod types.UID) (j *job, state api.ImagePull) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j = q.jobs[pod]
	if j != nil && !j.Cancelled {
		state = q.stateLocked(j)
	}
	return j, state
}

// isTerminal reports whether each image is either ready or can never be pulled, and one cannot.
func isTerminal(s api.ImagePull) bool {
	for _, i := range s.Images {
		if i.State != api.Ready && (i.State != api.Failed || i.NextRetry != nil) {
			return false
		}
	}
	return s.State == api.Failed
}

// count returns how many images are in each state.
func (q *queue) count() map[api.PullState]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	count := map[api.PullState]int{}
	for _, t := range q.tasks {
		count[t.state(t.image, "").State]++
	}
	return count
}

// State returns the state of a pod's pre-pull, and false if the pod has none.
func (p *Puller) State(pod types.NamespacedName) (api.ImagePull, bool) {
	j := p.queue.find(pod)
	if j == nil {
		return api.ImagePull{}, false
	}
	state, _ := p.queue.state(j)
	return state, true
}

// States returns all pre-pulls, in the order of their requests.
func (p *Puller) States() []api.ImagePull {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	list := []api.ImagePull{}
	for _, j := range p.queue.activeLocked() {
		list = append(list, p.queue.stateLocked(j))
	}
	return list
}

// Follow calls each with the current state of a pod's pre-pull and after each change, at most once
// every pause, except for the last state. It returns when the pre-pull, ctx or Run has ended, when
// each returns false, or when there is no pre-pull.
func (p *Puller) Follow(ctx context.Context, pod types.NamespacedName, pause time.Duration, each func(api.ImagePull) bool) {
	j := p.queue.find(pod)
	if j == nil {
		return
	}
	var sent api.ImagePull
	var sentAt time.Time
	for {
		changed := p.queue.next()
		state, over := p.queue.state(j)
		pending := !reflect.DeepEqual(state, sent)
		if wait := pause - time.Since(sentAt); pending && (over || wait <= 0) {
			if sent, sentAt = state, time.Now(); !each(state) {
				return
			}
			pending = false
		}
		if over {
			return
		}
		var timer <-chan time.Time
		if pending {
			timer = time.After(pause - time.Since(sentAt))
		}
		select {
		case <-ctx.Done():
			return
		case <-p.stopped:
			return
		case <-changed:
		case <-timer:
		}
	}
}
