package queue

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/imagepull/job"
)

// RetryNow retries the failed images of a pod at once, and resolves the tags of the others again.
func (q *Queue) RetryNow(pod types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j, now := q.jobs[pod], time.Now()
	if j == nil {
		return
	}
	for _, w := range j.Images {
		if t := q.tasks[w.Name]; t != nil && !t.running {
			t.retryAt(now)
			t.tagMayHaveMoved = t.ready != nil && !strings.Contains(w.Image, "@")
		}
	}
	q.wakeLocked()
}

// Retry retries at a time all tasks whose last attempt failed for this reason.
func (q *Queue) Retry(reason engineapi.Reason, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.tasks {
		if t.failure != nil && t.failure.Reason == reason && !t.running {
			t.retryAt(at)
		}
	}
	q.wakeLocked()
}

// Recheck queues a check of all images that are ready.
func (q *Queue) Recheck() { q.recheck(func(*engineapi.Image) bool { return true }) }

// Removed queues a check of the image that had a record of this name. Somebody has removed the
// record: the kubelet, for example, if this containerd does not support pinning.
func (q *Queue) Removed(name string) {
	q.recheck(func(i *engineapi.Image) bool { return i.HasRecord(name) })
}

func (q *Queue) recheck(which func(*engineapi.Image) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.tasks {
		if t.ready != nil && t.checked && which(t.ready) {
			t.checked, t.due = false, time.Now()
			q.wakeLocked()
		}
	}
}

// Claim reports whether no job wants the image of this name. If so, the image is not pulled
// before Unclaim.
func (q *Queue) Claim(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.tasks[name] != nil {
		return false
	}
	q.releasing[name] = true
	return true
}

// Ready returns the image of this name if a job wants it and it is on the node, and otherwise nil.
func (q *Queue) Ready(name string) *engineapi.Image {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.tasks[name]; t != nil {
		return t.ready
	}
	return nil
}

// Unclaim allows an image to be pulled again.
func (q *Queue) Unclaim(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.releasing, name)
	q.wakeLocked()
}

// Untagged returns the images of jobs that are ready and whose tags have not been set.
func (q *Queue) Untagged(jobs []*job.Job) (images []engineapi.Image) {
	q.mu.Lock()
	defer q.mu.Unlock()
	found := map[string]bool{}
	for _, j := range jobs {
		for i := range j.Images {
			t := q.tasks[j.Images[i].Name]
			if t == nil || t.ready == nil || t.tagged == t.ready.Target.Digest || found[t.Name] {
				continue
			}
			found[t.Name] = true
			images = append(images, *t.ready)
		}
	}
	return images
}

// Tagged records that the image's tag was set.
func (q *Queue) Tagged(image engineapi.Image) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.tasks[image.Name]; t != nil {
		t.tagged = image.Target.Digest
	}
}
