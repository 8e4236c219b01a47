package queue

import (
	"cmp"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/job"
)

// MaxOvertaken is how long tasks with fewer failures may overtake a task that is due. It matters
// when the failures of other tasks are reset again and again, for example whenever the cloud
// returns.
const MaxOvertaken = 6 * time.Hour

// turn is the place of a due task in the queue.
type turn struct {
	failures int       // of the task
	failing  int       // images of its job that have failed
	due      time.Time // since when
}

func (t *Task) isOverdue(now time.Time) bool { return t.failures > 0 && now.Sub(t.due) > MaxOvertaken }

// turnLocked returns the turn of a task of a job with that many failing images. A task that
// several jobs want has a turn for each, and the first turn counts. At most every second turn is
// given to an overdue task: many slow overdue tasks must not delay an image that can be pulled.
func (q *Queue) turnLocked(t *Task, failing int, now time.Time) turn {
	if t.isOverdue(now) && !q.overdue {
		return turn{due: t.due}
	}
	return turn{t.failures, failing, t.due}
}

// precedes reports whether t comes before other. Images that fail must not delay one that can be
// pulled, so the task with the fewest failures comes first, then the one whose job has the fewest
// failing images, then the one that has been due the longest.
func (t turn) precedes(other turn) bool {
	return cmp.Or(cmp.Compare(t.failures, other.failures), cmp.Compare(t.failing, other.failing), t.due.Compare(other.due)) < 0
}

// failingLocked counts the images of j whose last attempt has failed.
func (q *Queue) failingLocked(j *job.Job) int {
	count := 0
	for i := range j.Images {
		if t := q.tasks[j.Images[i].Name]; t != nil && t.failures > 0 {
			count++
		}
	}
	return count
}
