// Package queue decides which image is pulled next. It holds the jobs of a node, and one task
// for each image that any job wants, so that two jobs that want the same image pull it once.
// Tasks are derived from the jobs and not stored: containerd knows how far each pull is.
//
// A worker takes a task, pulls or checks its image, and finishes the task with an outcome. Of
// the tasks that are due, the one with the fewest failures is next (turn.go).
package queue

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/job"
)

// Queue holds the jobs of a node and their tasks. It is safe for concurrent use.
type Queue struct {
	jitter time.Duration

	mu        sync.Mutex
	jobs      map[types.UID]*job.Job
	tasks     map[string]*Task     // by the image's name
	ended     map[types.UID]ending // jobs that may still be followed
	releasing map[string]bool      // names of images that are being released
	overdue   bool                 // the last task taken was overdue; see turnLocked
	changed   chan struct{}        // closed and replaced at each change

	dropped chan struct{} // has room for one message, which stands for any number of images
}

// New returns a queue without jobs. The first attempts of automatic jobs are spread over jitter.
func New(jitter time.Duration) *Queue {
	return &Queue{
		jitter: jitter,
		jobs:   map[types.UID]*job.Job{}, tasks: map[string]*Task{}, ended: map[types.UID]ending{}, releasing: map[string]bool{},
		changed: make(chan struct{}), dropped: make(chan struct{}, 1),
	}
}

// Changed returns a channel that is closed at the next change. To miss no change, call Changed
// before reading the state.
func (q *Queue) Changed() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changed
}

// Dropped returns a channel that receives a message when images are no longer wanted.
func (q *Queue) Dropped() <-chan struct{} { return q.dropped }

// Wake closes the channel that Changed returned, although the queue has not changed.
func (q *Queue) Wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeLocked()
}

func (q *Queue) wakeLocked() {
	close(q.changed)
	q.changed = make(chan struct{})
}
