package queue

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/imagepull/job"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Add adds jobs of an earlier process. It skips pods that have a job already, which is newer.
func (q *Queue) Add(jobs []*job.Job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range jobs {
		if q.jobs[j.UID] == nil {
			q.jobs[j.UID] = j
		}
	}
	q.refreshLocked(time.Now())
}

// Replace adds a job. If its pod has one already, that job ends with the state how.
func (q *Queue) Replace(j *job.Job, how api.PullState) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if before := q.jobs[j.UID]; before != nil {
		q.endLocked(before, how, now)
	}
	q.jobs[j.UID] = j
	q.refreshLocked(now)
}

// End removes a job, which ends with the state how.
func (q *Queue) End(j *job.Job, how api.PullState) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.endLocked(j, how, now)
	delete(q.jobs, j.UID)
	q.refreshLocked(now)
}

// Update replaces a job with a changed copy that wants the same images.
func (q *Queue) Update(j *job.Job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.jobs[j.UID] = j
}

// FillReady sets Ready on those images of a job that are ready. The job must not be in the
// queue yet.
func (q *Queue) FillReady(j *job.Job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range j.Images {
		if t := q.tasks[j.Images[i].Name]; t != nil && t.ready != nil {
			j.Images[i].Ready = t.ready
		}
	}
}

// Job returns the job of a pod, or nil.
func (q *Queue) Job(uid types.UID) *job.Job {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.jobs[uid]
}

// Jobs returns all jobs in the order of their requests, including cancelled ones.
func (q *Queue) Jobs() []*job.Job {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sortedLocked()
}

// Find returns the newest job of a pod that is not cancelled, or nil.
func (q *Queue) Find(pod types.NamespacedName) *job.Job {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.findLocked(pod)
}

func (q *Queue) findLocked(pod types.NamespacedName) *job.Job {
	for _, j := range slices.Backward(q.sortedLocked()) {
		if j.Name() == pod && !j.Cancelled {
			return j
		}
	}
	return nil
}

// Wanting returns the jobs that want a task, in the order of their requests.
func (q *Queue) Wanting(t *Task) []*job.Job {
	return slices.DeleteFunc(q.Jobs(), func(j *job.Job) bool { return !j.Wants(t.Name) })
}

// refreshLocked derives the tasks from the jobs. It cancels or deletes tasks that no job wants,
// and creates those that are missing.
func (q *Queue) refreshLocked(now time.Time) {
	jobs := slices.DeleteFunc(q.sortedLocked(), func(j *job.Job) bool { return j.Cancelled })
	wanted := map[string]bool{}
	for _, j := range jobs {
		for i := range j.Images {
			wanted[j.Images[i].Name] = true
			q.addTaskLocked(j, &j.Images[i], now)
		}
	}
	for name, t := range q.tasks {
		switch {
		case wanted[name]:
		case t.running:
			t.cancel() // Finish refreshes again, which deletes the task
		default:
			delete(q.tasks, name)
			select {
			case q.dropped <- struct{}{}:
			default: // an earlier message is still unread
			}
		}
	}
	q.wakeLocked()
}

func (q *Queue) addTaskLocked(j *job.Job, w *job.Image, now time.Time) {
	t := q.tasks[w.Name]
	if t == nil {
		t = &Task{Name: w.Name, Image: w.Image, due: now}
		if j.Automatic && q.jitter > 0 {
			t.due = now.Add(rand.N(q.jitter))
		}
		q.tasks[w.Name] = t
	}
	if t.ready == nil && w.Ready != nil {
		t.ready = w.Ready
		t.progress = engineapi.Progress{Done: w.Ready.Size, Total: w.Ready.Size}
	}
}

// sortedLocked returns the jobs in the order of their requests.
func (q *Queue) sortedLocked() []*job.Job {
	return slices.SortedFunc(maps.Values(q.jobs), func(a, b *job.Job) int {
		return cmp.Or(a.Requested.Compare(b.Requested), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
}
