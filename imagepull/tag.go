package imagepull

import (
	"context"
	"log/slog"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engine"
)

// tagRetry is when a tag is set again that containerd did not take.
const tagRetry = time.Second

// tag sets the tags of images that are ready once the pods that they replace are ending.
// Until then a tag stands for what the present pod runs, since kubelet looks it up whenever
// it restarts one of the pod's containers, and would run the new version ahead of the upgrade.
//
// Nothing of this is kept on disk: it follows from the jobs and the pods, so it is done
// after a restart, too. kubelet restarts no container of a pod that is being deleted. The
// next pod is created when the old one has gone, which kubelet reports, so there are several
// round trips to the cloud between the deletion and the first container that needs the tag.
func (p *Puller) tag(ctx context.Context) {
	level := slog.LevelWarn
	for ctx.Err() == nil {
		images, changed := p.untagged()
		var again <-chan time.Time
		for _, image := range images {
			err := p.engine.Tag(ctx, image)
			p.tagged(image, err)
			if err != nil && ctx.Err() == nil {
				// Once for each time: containerd may be away for long.
				p.log.Log(ctx, level, "tag cannot be set to the image that was pulled ahead; it is tried again", "image", image.Name, "err", err)
				level, again = slog.LevelDebug, time.After(tagRetry)
			}
		}
		if again == nil {
			level = slog.LevelWarn
		} else {
			changed = nil // changes are many while other images are pulled
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-again:
		}
	}
}

// untagged returns the images whose tags are to be set, and a channel that is closed when
// that may have changed.
func (p *Puller) untagged() (images []engine.Image, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := map[string]bool{}
	for _, j := range p.jobs {
		if j.Cancelled || !p.isEndingLocked(j) {
			continue
		}
		for i := range j.Images {
			t := p.tasks[j.Images[i].name]
			if t == nil || t.ready == nil || t.tagged == t.ready.Target.Digest || found[t.name] {
				continue
			}
			found[t.name] = true
			images = append(images, *t.ready)
		}
	}
	return images, p.changed
}

// isEndingLocked reports whether the pod of a job is being deleted, or gone. What was
// seen of the pods before the job was made may lack a pod that is there.
func (p *Puller) isEndingLocked(j *job) bool {
	if pod := p.pods[j.UID]; pod != nil {
		return pod.DeletionTimestamp != nil
	}
	return p.seen > j.seen
}

// tagged notes that a tag was set, or that its image is gone, for which it is looked then.
func (p *Puller) tagged(image engine.Image, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tasks[image.Name]
	if t == nil {
		return
	}
	if err == nil {
		t.tagged = image.Target.Digest
	} else if failureOf(err).Reason == engine.Gone && t.ready != nil && t.checked {
		t.checked, t.due = false, time.Now()
		p.wakeLocked()
	}
}
