package retention

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/imagepull/job"
)

// TagRetryInterval is when a tag is set again that containerd did not accept.
const TagRetryInterval = time.Second

// runTags sets the tags of ready images once the pods that they replace are being deleted. Until
// then a tag points to the image that the present pod runs: the kubelet resolves the tag whenever
// it restarts a container of the pod, and would otherwise run the new version ahead of the
// upgrade.
//
// Nothing of this is stored, because it can be derived from the jobs and the pods, also after a
// restart. The kubelet restarts no container of a pod that is being deleted, and the next pod is
// created only when the old one is gone. So there are several round trips to the cloud between
// the deletion and the first container that needs the tag.
func (r *Retainer) runTags(ctx context.Context) {
	level := slog.LevelWarn
	for ctx.Err() == nil {
		changed := r.Queue.Changed()
		var again <-chan time.Time
		for _, image := range r.Queue.Untagged(r.endingJobs()) {
			err := r.Engine.Tag(ctx, image)
			switch {
			case err == nil:
				r.Queue.Tagged(image)
				continue
			case engineapi.AsError(err).Reason == engineapi.Gone:
				r.Queue.Removed(image.Name) // a check pulls the image again
			}
			if ctx.Err() == nil {
				// One warning until all tags are set: containerd may be away for long.
				r.Logger.Log(ctx, level, "tag cannot be set to the image that was pulled ahead; it is tried again", "image", image.Name, "err", err)
				level, again = slog.LevelDebug, time.After(TagRetryInterval)
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

// endingJobs returns the jobs whose pods are being deleted, or gone.
func (r *Retainer) endingJobs() []*job.Job {
	return slices.DeleteFunc(r.Queue.Jobs(), func(j *job.Job) bool { return j.Cancelled || !r.IsEnding(j) })
}
