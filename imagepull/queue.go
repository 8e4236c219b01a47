package imagepull

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// gracePeriod is how long the images of a former target are retained: the next target often
// shares most of them.
const gracePeriod = 10 * time.Minute

// queue has, in memory, the node's pods, their jobs, and one task for each image that any job wants, so that two jobs that
// want the same image pull it once. Tasks follow from the jobs: containerd knows how far each pull is. It is safe for
// concurrent use, and does no I/O.
type queue struct {
	jitter    time.Duration // over which first attempts of automatic jobs are spread
	onChange  func()        // called when anything but the progress of a pull changes; it does not block
	sweepSoon chan struct{} // images are no longer wanted, or to be checked; one message stands for any number of them

	mu      sync.Mutex
	pods    map[types.UID]*corev1.Pod // as the watch last showed them, read-only; nil until they are known
	jobs    map[types.UID]*job
	tasks   map[string]*task     // by the image's name
	busy    map[string]bool      // images that are being pulled, checked, retained or released
	grace   map[string]time.Time // until when images of former targets are retained, by name
	changed chan struct{}        // closed and replaced at each change
}

func newQueue(jitter time.Duration) *queue {
	return &queue{
		jitter: jitter, onChange: func() {}, sweepSoon: make(chan struct{}, 1),
		jobs: map[types.UID]*job{}, tasks: map[string]*task{}, busy: map[string]bool{}, grace: map[string]time.Time{},
		changed: make(chan struct{}),
	}
}

// next returns a channel that is closed at the next change. To miss no change, call next before reading
// the state.
func (q *queue) next() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changed
}

func (q *queue) wakeLocked() {
	close(q.changed)
	q.changed = make(chan struct{})
}

func (q *queue) changedLocked() {
	q.wakeLocked()
	q.onChange()
}

// sweep has runSweeps look at the node's images soon.
func (q *queue) sweep() {
	select {
	case q.sweepSoon <- struct{}{}:
	default:
	}
}

// setPods sets the node's pods.
func (q *queue) setPods(list []*corev1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pods = make(map[types.UID]*corev1.Pod, len(list))
	for _, pod := range list {
		q.pods[pod.UID] = pod
		if j := q.jobs[pod.UID]; j != nil {
			j.seen = true
		}
	}
	q.wakeLocked()
}

// shown returns the node's pods, read-only, or nil until they are known.
func (q *queue) shown() map[types.UID]*corev1.Pod {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pods
}

// isEndingLocked reports whether the pod of a job is being deleted, or gone.
func (q *queue) isEndingLocked(j *job) bool {
	if pod := q.pods[j.UID]; pod != nil {
		return pod.DeletionTimestamp != nil
	}
	return q.pods != nil && j.seen
}

// load adds the job of an earlier process.
func (q *queue) load(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range j.Images {
		j.Images[i].Name = imageName(j.Images[i].Image)
	}
	j.seen = true
	q.jobs[j.UID] = j
	q.refreshLocked()
	for _, w := range j.Images { // the file of another job with the same image may be older
		if t := q.tasks[w.Name]; t != nil && t.ready == nil && w.Ready != nil && !j.Cancelled {
			t.setReady(w.Ready, false)
		}
	}
}

// put adds a job. If its pod has one already, that ends with the state how.
func (q *queue) put(j *job, how api.PullState) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.endLocked(j.UID, how)
	j.seen = q.pods[j.UID] != nil
	q.jobs[j.UID] = j
	q.refreshLocked()
}

// remove ends the job of a pod that wants it no more.
func (q *queue) remove(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.endLocked(j.UID, api.Superseded)
	delete(q.jobs, j.UID)
	q.refreshLocked()
}

// endLocked ends the job of a pod, if it has one, with the state how unless it is ready. The images of a
// former target are retained for some time.
func (q *queue) endLocked(pod types.UID, how api.PullState) {
	j := q.jobs[pod]
	if j == nil || j.Cancelled {
		return
	}
	last := q.stateLocked(j)
	if last.State != api.Ready {
		last.State = how
	}
	j.last = &last
	if how != api.Superseded || q.pods[pod] == nil {
		return
	}
	for _, w := range j.Images {
		q.grace[w.Name] = time.Now().Add(gracePeriod)
	}
	time.AfterFunc(gracePeriod, q.sweep)
}

// file returns a copy of a job for its file, with those of its images that are ready.
func (q *queue) file(j *job) job {
	q.mu.Lock()
	defer q.mu.Unlock()
	f := *j
	f.Images = slices.Clone(j.Images)
	for i := range f.Images {
		f.Images[i].Ready = nil
		if t := q.tasks[f.Images[i].Name]; t != nil {
			f.Images[i].Ready = t.ready
		}
	}
	return f
}

// job returns the job of a pod, perhaps a cancelled one, or nil.
func (q *queue) job(pod types.UID) *job {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.jobs[pod]
}

// all returns all jobs in the order of their requests, including cancelled ones.
func (q *queue) all() []*job {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sortedLocked()
}

func (q *queue) sortedLocked() []*job {
	return slices.SortedFunc(maps.Values(q.jobs), func(a, b *job) int {
		return cmp.Or(a.Requested.Compare(b.Requested), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
}

// activeLocked returns the jobs that want images, in the order of their requests.
func (q *queue) activeLocked() []*job {
	return slices.DeleteFunc(q.sortedLocked(), func(j *job) bool { return j.Cancelled })
}

// find returns the newest job of a pod that is not cancelled, or nil.
func (q *queue) find(pod types.NamespacedName) *job {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range slices.Backward(q.activeLocked()) {
		if j.name() == pod {
			return j
		}
	}
	return nil
}

// wanting returns the jobs that want an image, in the order of their requests.
func (q *queue) wanting(name string) []*job {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.DeleteFunc(q.activeLocked(), func(j *job) bool {
		return !slices.ContainsFunc(j.Images, func(w jobImage) bool { return w.Name == name })
	})
}

// refreshLocked derives the tasks from the jobs. It cancels or deletes tasks that no job wants,
// and creates those that are missing.
func (q *queue) refreshLocked() {
	wanted := map[string]bool{}
	for _, j := range q.activeLocked() {
		for _, w := range j.Images {
			wanted[w.Name] = true
			if q.tasks[w.Name] == nil {
				q.tasks[w.Name] = q.newTask(j, w)
			}
		}
	}
	for name, t := range q.tasks {
		switch {
		case wanted[name]:
		case t.cancel != nil:
			t.cancel() // finish refreshes again, which deletes the task
		default:
			delete(q.tasks, name)
			q.sweep()
		}
	}
	q.changedLocked()
}

func (q *queue) newTask(j *job, w jobImage) *task {
	t := &task{name: w.Name, image: w.Image, due: time.Now()}
	if j.Automatic && q.jitter > 0 {
		t.due = t.due.Add(rand.N(q.jitter))
	}
	if w.Ready != nil {
		t.setReady(w.Ready, false)
	}
	return t
}
