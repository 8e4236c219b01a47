package imagepull

import (
	"context"
	"log/slog"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// tagRetry is when a tag is set again that containerd did not accept.
const tagRetry = time.Second

// runTags sets the tags of ready images once the pods that they replace are being deleted. Until
// then a tag points to the image that the present pod runs: the kubelet resolves the tag whenever
// it restarts a container of the pod, and would otherwise run the new version ahead of the
// upgrade.
//
// Nothing of this is stored, because it can be derived from the jobs and the pods, also after a
// restart. The kubelet restarts no container of a pod that is being deleted, and the next pod is
// created only when the old one is gone. So there are several round trips to the cloud between
// the deletion and the first container that needs the tag.
func (p *Puller) runTags(ctx context.Context) {
	level := slog.LevelWarn
	for ctx.Err() == nil {
		changed := p.queue.next()
		var again <-chan time.Time
		for _, image := range p.queue.untagged() {
			err := p.Engine.Tag(ctx, image)
			switch {
			case err == nil:
				p.queue.setTagged(image)
				continue
			case engineapi.AsError(err).Reason == engineapi.Gone:
				p.removed(image.Name) // a check has it pulled again
			}
			if ctx.Err() == nil {
				// One warning until all tags are set: containerd may be away for long.
				p.Logger.Log(ctx, level, "tag cannot be set to the image that was pulled ahead; it is tried again", "image", image.Name, "err", err)
				level, again = slog.LevelDebug, time.After(tagRetry)
			}
		}
		if again == nil {
			level = slog.LevelWarn
		} else {
			changed = nil // while other images are pulled, changes come too often to retry at each
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-again:
		}
	}
}

// untagged returns the images that are ready and whose tags have not been set, of jobs whose pods are being deleted, or
// gone.
func (q *queue) untagged() (images []engineapi.Image) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ending := map[string]bool{}
	for _, j := range q.activeLocked() {
		for _, w := range j.Images {
			ending[w.Name] = ending[w.Name] || q.isEndingLocked(j)
		}
	}
	for name, t := range q.tasks {
		if ending[name] && t.ready != nil && t.tagged != t.ready.Target.Digest {
			images = append(images, *t.ready)
		}
	}
	return images
}

// setTagged records that the image's tag was set.
func (q *queue) setTagged(image engineapi.Image) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.tasks[image.Name]; t != nil {
		t.tagged = image.Target.Digest
	}
}
