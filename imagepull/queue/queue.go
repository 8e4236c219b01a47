// Package queue decides which image is pulled next. It holds the jobs of a node, and a
// task for each image that any of them wants: two jobs that want the same image pull it
// once. Tasks follow from the jobs and are not kept: how far one is, containerd knows.
//
// Workers take a task, pull or check its image, and give it back with what became of it.
// Of the tasks that are due, the one with the fewest failures is next (turn.go).
package queue

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/job"
)

// Queue is the images that a node's jobs want. All methods may be called at any time,
// from several goroutines.
type Queue struct {
	jitter time.Duration

	mu        sync.Mutex
	jobs      map[types.UID]*job.Job
	tasks     map[string]*Task     // by the image's name
	ended     map[types.UID]ending // jobs that may still be watched
	releasing map[string]bool      // names of images that are being released
	overdue   bool                 // the turn before was that of an overdue task; see turnLocked
	changed   chan struct{}        // closed, and made anew, at each change

	// dropped has a message after an image is no longer wanted; one is enough for several.
	dropped chan struct{}
}

// New returns a queue without jobs. The first attempts at images that nobody on the node
// asked for are spread over jitter.
func New(jitter time.Duration) *Queue {
	return &Queue{
		jitter: jitter,
		jobs:   map[types.UID]*job.Job{}, tasks: map[string]*Task{}, ended: map[types.UID]ending{}, releasing: map[string]bool{},
		changed: make(chan struct{}), dropped: make(chan struct{}, 1),
	}
}

// Changed returns a channel that is closed at the next change. To miss none, get it
// before looking at what may change.
func (q *Queue) Changed() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changed
}

// Dropped returns a channel with a message after an image, or several, are not wanted
// any more.
func (q *Queue) Dropped() <-chan struct{} { return q.dropped }

// Wake has those who wait for a change look again.
func (q *Queue) Wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeLocked()
}

// wakeLocked wakes all who wait for a change.
func (q *Queue) wakeLocked() {
	close(q.changed)
	q.changed = make(chan struct{})
}
