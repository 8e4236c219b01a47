package queue

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/job"
	"github.com/edgehub-io/edgehub/ota/api"
)

func (q *Queue) stateLocked(j *job.Job) api.ImagePull {
	s := api.ImagePull{
		Namespace: j.Namespace, Pod: j.Pod, UID: string(j.UID), Revision: j.Revision,
		Requested: j.Requested,
	}
	count := map[api.PullState]int{}
	for _, w := range j.Images {
		i := api.Image{Image: w.Image, State: api.Queued}
		if t := q.tasks[w.Name]; t != nil {
			i = t.state(w.Image, j.Namespace, time.Now())
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

// ending is the last state of a job, for those who follow the job.
type ending struct {
	last api.ImagePull
	at   time.Time
}

// endingKept is how long an ending is remembered.
const endingKept = time.Minute

// endLocked records that j ends with the state how, unless it is ready.
func (q *Queue) endLocked(j *job.Job, how api.PullState, now time.Time) {
	maps.DeleteFunc(q.ended, func(_ types.UID, e ending) bool { return now.Sub(e.at) > endingKept })
	if j.Cancelled {
		return
	}
	last := q.stateLocked(j)
	if last.State != api.Ready {
		last.State = how
	}
	q.ended[j.UID] = ending{last, now}
}

// Status returns the state of j, which may have ended, and whether that state is final.
func (q *Queue) Status(j *job.Job) (api.ImagePull, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.jobs[j.UID]
	if now == nil || now.Cancelled || now.Revision != j.Revision {
		if e, ok := q.ended[j.UID]; ok {
			return e.last, true
		}
		last := q.stateLocked(j)
		last.State = api.Superseded
		return last, true
	}
	state := q.stateLocked(now)
	return state, state.State == api.Ready || isTerminal(state)
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

// State returns the state of a pod's pre-pull, and false if the pod has none.
func (q *Queue) State(pod types.NamespacedName) (api.ImagePull, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.knownLocked(q.findLocked(pod))
}

// StateOf is State for the pod with this UID.
func (q *Queue) StateOf(pod types.UID) (api.ImagePull, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.knownLocked(q.jobs[pod])
}

func (q *Queue) knownLocked(j *job.Job) (api.ImagePull, bool) {
	if j == nil || j.Cancelled {
		return api.ImagePull{}, false
	}
	return q.stateLocked(j), true
}

// States returns all pre-pulls, in the order of their requests.
func (q *Queue) States() []api.ImagePull {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := []api.ImagePull{}
	for _, j := range q.sortedLocked() {
		if !j.Cancelled {
			list = append(list, q.stateLocked(j))
		}
	}
	return list
}

// Count returns how many images are in each state.
func (q *Queue) Count() map[api.PullState]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	count := map[api.PullState]int{}
	for _, t := range q.tasks {
		count[t.state(t.Image, "", time.Now()).State]++
	}
	return count
}
