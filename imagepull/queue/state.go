package queue

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/job"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

// stateLocked is the state of a job.
func (q *Queue) stateLocked(j *job.Job) nodeapi.ImagePull {
	s := nodeapi.ImagePull{
		Namespace: j.Namespace, Pod: j.Pod, UID: string(j.UID), Revision: j.Revision,
		Requested: j.Requested,
	}
	count := map[nodeapi.State]int{}
	for _, w := range j.Images {
		i := nodeapi.Image{Image: w.Image, State: nodeapi.Queued}
		if t := q.tasks[w.Name]; t != nil {
			i = t.state(w.Image, j.Namespace, time.Now())
		}
		count[i.State]++
		s.Images = append(s.Images, i)
	}
	switch {
	case count[nodeapi.Ready] == len(j.Images):
		s.State = nodeapi.Ready
	case count[nodeapi.Pulling] > 0:
		s.State = nodeapi.Pulling
	case count[nodeapi.Queued] > 0:
		s.State = nodeapi.Queued
	default:
		s.State = nodeapi.Failed
	}
	return s
}

// state returns what a namespace may know of t, under the name that a pod uses for the image.
func (t *Task) state(image, namespace string, now time.Time) nodeapi.Image {
	i := nodeapi.Image{
		Image: image, BytesDone: t.progress.Done, BytesTotal: t.progress.Total, Attempts: t.attempts,
	}
	if t.ready != nil {
		i.State, i.Digest = nodeapi.Ready, t.ready.Target.Digest.String()
		return i
	}
	if t.failure != nil {
		i.Reason, i.LastError = string(t.failure.Reason), t.failure.For(namespace)
	}
	switch {
	case t.running:
		i.State = nodeapi.Pulling
	case t.failure == nil:
		i.State = nodeapi.Queued
	case t.failure.Permanent:
		i.State = nodeapi.Failed
	case t.due.After(now):
		i.State = nodeapi.Failed
		due := t.due.UTC().Truncate(time.Second)
		i.NextRetry = &due
	default: // it waits for its turn
		i.State = nodeapi.Queued
	}
	return i
}

// ending is how a job ended, for those who watch it.
type ending struct {
	last nodeapi.ImagePull
	at   time.Time
}

// endingKept is how long an ending is remembered.
const endingKept = time.Minute

// endLocked keeps for those who watch j how it ended.
func (q *Queue) endLocked(j *job.Job, how nodeapi.State, now time.Time) {
	for uid, e := range q.ended {
		if now.Sub(e.at) > endingKept {
			delete(q.ended, uid)
		}
	}
	if j.Cancelled {
		return
	}
	last := q.stateLocked(j)
	if last.State != nodeapi.Ready {
		last.State = how
	}
	q.ended[j.UID] = ending{last, now}
}

// Status returns the state of what was the job j, and whether it is final.
func (q *Queue) Status(j *job.Job) (nodeapi.ImagePull, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.jobs[j.UID]
	if now == nil || now.Cancelled || now.Revision != j.Revision {
		if e, ok := q.ended[j.UID]; ok {
			return e.last, true
		}
		last := q.stateLocked(j)
		last.State = nodeapi.Superseded
		return last, true
	}
	state := q.stateLocked(now)
	return state, state.State == nodeapi.Ready || isTerminal(state)
}

// isTerminal reports whether nothing more will happen: an image can never be pulled, and all
// others are there.
func isTerminal(s nodeapi.ImagePull) bool {
	for _, i := range s.Images {
		if i.State != nodeapi.Ready && (i.State != nodeapi.Failed || i.NextRetry != nil) {
			return false
		}
	}
	return s.State == nodeapi.Failed
}

// State returns how far the pre-pull of a pod is, and false if there is none.
func (q *Queue) State(pod types.NamespacedName) (nodeapi.ImagePull, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j := q.findLocked(pod)
	if j == nil {
		return nodeapi.ImagePull{}, false
	}
	return q.stateLocked(j), true
}

// StateOf is State for the pod with this UID.
func (q *Queue) StateOf(pod types.UID) (nodeapi.ImagePull, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j := q.jobs[pod]
	if j == nil || j.Cancelled {
		return nodeapi.ImagePull{}, false
	}
	return q.stateLocked(j), true
}

// States returns all pre-pulls, in the order in which they were asked for.
func (q *Queue) States() []nodeapi.ImagePull {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := []nodeapi.ImagePull{}
	for _, j := range q.sortedLocked() {
		if !j.Cancelled {
			list = append(list, q.stateLocked(j))
		}
	}
	return list
}

// Count returns how many images there are in each state.
func (q *Queue) Count() map[nodeapi.State]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	count := map[nodeapi.State]int{}
	for _, t := range q.tasks {
		count[t.state(t.Image, "", time.Now()).State]++
	}
	return count
}
