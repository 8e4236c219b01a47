package imagepull

import (
	"time"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

// stateLocked is what is told of a job.
func (p *Puller) stateLocked(j *job) nodeapi.ImagePull {
	s := nodeapi.ImagePull{
		Namespace: j.Namespace, Pod: j.Pod, UID: string(j.UID), Revision: j.Revision,
		Requested: j.Requested,
	}
	count := map[nodeapi.State]int{}
	for _, w := range j.Images {
		i := nodeapi.Image{Image: w.Image, State: nodeapi.Queued}
		if t := p.tasks[w.name]; t != nil {
			i = t.state(w.Image, j.Namespace, time.Now())
		}
		count[i.State]++
		s.Images = append(s.Images, i)
	}
	switch {
	case count[nodeapi.Ready] == len(j.Images):
		s.State = nodeapi.Ready
	case count[nodeapi.Pulling] > 0:
		s.State = nodeapi.Pulling
	case count[nodeapi.Queued] > 0:
		s.State = nodeapi.Queued
	default:
		s.State = nodeapi.Failed
	}
	return s
}

// state returns what a namespace may know of t, under the name that a pod uses for the image.
func (t *task) state(image, namespace string, now time.Time) nodeapi.Image {
	i := nodeapi.Image{
		Image: image, BytesDone: t.progress.Done, BytesTotal: t.progress.Total, Attempts: t.attempts,
	}
	if t.ready != nil {
		i.State, i.Digest = nodeapi.Ready, t.ready.Target.Digest.String()
		return i
	}
	if t.failure != nil {
		i.Reason, i.LastError = string(t.failure.Reason), t.failure.For(namespace)
	}
	switch {
	case t.running:
		i.State = nodeapi.Pulling
	case t.failure == nil:
		i.State = nodeapi.Queued
	case t.failure.Permanent:
		i.State = nodeapi.Failed
	case t.due.After(now):
		i.State = nodeapi.Failed
		due := t.due.UTC().Truncate(time.Second)
		i.NextRetry = &due
	default: // it waits for its turn
		i.State = nodeapi.Queued
	}
	return i
}
