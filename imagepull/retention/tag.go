package retention

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/imagepull/job"
)

// TagRetryInterval is when a tag is set again that containerd did not take.
const TagRetryInterval = time.Second

// tag sets the tags of images that are ready once the pods that they replace are ending.
// Until then a tag stands for what the present pod runs, since kubelet looks it up whenever
// it restarts one of the pod's containers, and would run the new version ahead of the upgrade.
//
// Nothing of this is kept on disk: it follows from the jobs and the pods, so it is done
// after a restart, too. kubelet restarts no container of a pod that is being deleted. The
// next pod is created when the old one has gone, which kubelet reports, so there are several
// round trips to the cloud between the deletion and the first container that needs the tag.
func (r *Retainer) runTags(ctx context.Context) {
	level := slog.LevelWarn
	for ctx.Err() == nil {
		changed := r.Queue.Changed()
		images := r.Queue.Untagged(r.endingJobs())
		var again <-chan time.Time
		for _, image := range images {
			err := r.Engine.Tag(ctx, image)
			r.tagged(image, err)
			if err != nil && ctx.Err() == nil {
				// Once for each time: containerd may be away for long.
				r.Logger.Log(ctx, level, "tag cannot be set to the image that was pulled ahead; it is tried again", "image", image.Name, "err", err)
				level, again = slog.LevelDebug, time.After(TagRetryInterval)
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
func (r *Retainer) endingJobs() []*job.Job {
	return slices.DeleteFunc(r.Queue.Jobs(), func(j *job.Job) bool { return j.Cancelled || !r.IsEnding(j) })
}

// tagged notes that a tag was set, or that its image is gone, for which it is looked then.
func (r *Retainer) tagged(image engineapi.Image, err error) {
	if err == nil {
		r.Queue.Tagged(image)
	} else if engineapi.AsError(err).Reason == engineapi.Gone {
		r.Queue.Removed(image.Name)
	}
}
