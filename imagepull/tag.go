package imagepull

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/imagepull/job"
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
		changed := p.queue.Changed()
		images := p.queue.Untagged(p.endingJobs())
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

// endingJobs returns the jobs whose pods are being deleted, or gone.
func (p *Puller) endingJobs() []*job.Job {
	return slices.DeleteFunc(p.queue.Jobs(), func(j *job.Job) bool { return j.Cancelled || !p.pods.isEnding(j) })
}

// tagged notes that a tag was set, or that its image is gone, for which it is looked then.
func (p *Puller) tagged(image engineapi.Image, err error) {
	if err == nil {
		p.queue.Tagged(image)
	} else if failureOf(err).Reason == engineapi.Gone {
		p.queue.Removed(image.Name)
	}
}
