package queue

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/imagepull/job"
)

// RetryNow retries at once what failed of a pod's images, and asks registries again for
// images by tag.
func (q *Queue) RetryNow(pod types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j, now := q.jobs[pod], time.Now()
	if j == nil {
		return
	}
	for _, w := range j.Images {
		if t := q.tasks[w.Name]; t != nil && !t.running {
			t.retryNow(now)
			t.tagMayHaveMoved = t.ready != nil && !strings.Contains(w.Image, "@")
		}
	}
	q.wakeLocked()
}

// Retry has what failed for a reason tried at a time.
func (q *Queue) Retry(reason engineapi.Reason, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.tasks {
		if t.failure != nil && t.failure.Reason == reason && !t.running {
			t.retryNow(at)
		}
	}
	q.wakeLocked()
}

// Recheck queues a check of all images that are ready.
func (q *Queue) Recheck() { q.recheck(func(*engineapi.Image) bool { return true }) }

// Removed queues a check of an image that somebody has removed, given the name of one of its
// records: kubelet, to make room, where containerd does not know that it is pinned.
func (q *Queue) Removed(name string) {
	q.recheck(func(i *engineapi.Image) bool {
		return name == i.Name || name == i.ID || strings.HasSuffix(name, "@"+i.Target.Digest.String())
	})
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

// Claim reports whether no job wants the image of this name, and keeps it from being
// pulled until Unclaim.
func (q *Queue) Claim(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.tasks[name] != nil {
		return false
	}
	q.releasing[name] = true
	return true
}

// Unclaim lets an image be pulled again.
func (q *Queue) Unclaim(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.releasing, name)
	q.wakeLocked()
}

// Untagged returns the images of jobs that are ready, and whose tags have not been set
// to them.
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

// Tagged notes that a tag was set.
func (q *Queue) Tagged(image engineapi.Image) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.tasks[image.Name]; t != nil {
		t.tagged = image.Target.Digest
	}
}
