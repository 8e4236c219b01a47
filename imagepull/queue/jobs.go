package queue

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/imagepull/job"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

// Add takes in jobs of an earlier process. A newer job of the same pod stays.
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

// Replace puts j in the place of the pod's job before, if there is one, which has ended
// with how.
func (q *Queue) Replace(j *job.Job, how nodeapi.State) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if before := q.jobs[j.UID]; before != nil {
		q.endLocked(before, how, now)
	}
	q.jobs[j.UID] = j
	q.refreshLocked(now)
}

// End forgets a job.
func (q *Queue) End(j *job.Job, how nodeapi.State) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.endLocked(j, how, now)
	delete(q.jobs, j.UID)
	q.refreshLocked(now)
}

// Update takes in a changed copy of a job, which wants the same images.
func (q *Queue) Update(j *job.Job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.jobs[j.UID] = j
}

// FillReady notes in j, which is not in the queue yet, which of its images are ready.
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

// Jobs returns all jobs, cancelled ones too, in the order in which they were asked for.
func (q *Queue) Jobs() []*job.Job {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sortedLocked()
}

// Find returns the newest job of the pod with this name that is not cancelled, or nil.
func (q *Queue) Find(pod types.NamespacedName) *job.Job {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.findLocked(pod)
}

// Wanting returns the jobs that want t, in the order in which they were asked for.
func (q *Queue) Wanting(t *Task) []*job.Job {
	q.mu.Lock()
	defer q.mu.Unlock()
	var jobs []*job.Job
	for _, j := range q.sortedLocked() {
		if j.Wants(t.Name) {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

func (q *Queue) findLocked(pod types.NamespacedName) *job.Job {
	var found *job.Job
	for _, j := range q.sortedLocked() {
		if j.Name() == pod && !j.Cancelled {
			found = j
		}
	}
	return found
}

// refreshLocked makes the tasks follow from the jobs: what nobody wants any more is
// cancelled and forgotten, what somebody wants is there.
func (q *Queue) refreshLocked(now time.Time) {
	wanted := map[string]bool{}
	for _, j := range q.jobs {
		for i := range j.Images {
			wanted[j.Images[i].Name] = wanted[j.Images[i].Name] || !j.Cancelled
		}
	}
	for name, t := range q.tasks {
		switch {
		case wanted[name]:
		case t.running:
			t.cancel() // forgotten when it has ended
		default:
			delete(q.tasks, name)
			select {
			case q.dropped <- struct{}{}:
			default: // who waits has not heard of the one before yet
			}
		}
	}
	for _, j := range q.sortedLocked() {
		if j.Cancelled {
			continue
		}
		for i := range j.Images {
			q.addTaskLocked(j, &j.Images[i], now)
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

// sortedLocked returns the jobs in the order in which they were asked for.
func (q *Queue) sortedLocked() []*job.Job {
	jobs := make([]*job.Job, 0, len(q.jobs))
	for _, j := range q.jobs {
		jobs = append(jobs, j)
	}
	slices.SortFunc(jobs, func(a, b *job.Job) int {
		return cmp.Or(a.Requested.Compare(b.Requested), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	return jobs
}
