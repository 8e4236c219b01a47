package queue

import (
	"cmp"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/job"
)

// MaxOvertaken is how long a task that is due may be overtaken by tasks with fewer
// failures. It matters where the failures of other tasks are reset again and again:
// whenever the cloud returns, for example.
const MaxOvertaken = 6 * time.Hour

// turn is where a task that is due stands in the queue.
type turn struct {
	failures int       // of the task
	failing  int       // images of its job that have failed
	due      time.Time // since when
}

// isOverdue reports whether a task has been overtaken for too long.
func (t *Task) isOverdue(now time.Time) bool { return t.failures > 0 && now.Sub(t.due) > MaxOvertaken }

// turnLocked returns the turn of a task of a job with that many failing images. Where
// several jobs want an image, each gives it a turn, and the first of these counts. At most
// every second turn is that of an overdue task: where these are many, and take long, they
// must not delay what can be pulled for a whole round.
func (q *Queue) turnLocked(t *Task, failing int, now time.Time) turn {
	if t.isOverdue(now) && !q.overdue {
		return turn{due: t.due}
	}
	return turn{t.failures, failing, t.due}
}

// precedes reports whether t comes before other. Images that fail must not delay one
// that can be pulled, so the task with the fewest failures comes first. Among new ones
// it is one of a job that has not had a failure. Then the one comes first that has been
// due the longest.
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
