package imagepull

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/job"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// Request has the images of pod's target pulled. When it returns nil, that is not
// forgotten any more. Asked for again, what failed is tried at once, unless the
// registry asked to wait, and tags are resolved again.
func (p *Puller) Request(pod *corev1.Pod, t upgrade.Target) error {
	p.disk.Lock()
	defer p.disk.Unlock()
	have := p.queue.Job(pod.UID)
	if have == nil || have.Cancelled || !have.IsFor(pod, t) {
		if err := p.start(pod, t, false); err != nil {
			return err
		}
	} else if err := p.store.Save(have); err != nil { // it may have been kept in memory only
		return err
	}
	p.queue.RetryNow(pod.UID)
	return nil
}

// start makes a job, in place of any other for the same pod. p.disk is held.
func (p *Puller) start(pod *corev1.Pod, t upgrade.Target, automatic bool) error {
	j := job.New(pod, t, automatic, time.Now())
	p.queue.FillReady(j)
	j.PodsGeneration = p.pods.generation()
	if err := p.store.Save(j); err != nil {
		return err
	}
	p.log.Info("pre-pull is queued", "pod", j.Name().String(), "revision", j.Revision, "images", len(j.Images), "unasked", automatic)
	if before := p.queue.Job(pod.UID); before != nil {
		p.retention.StartGracePeriod(before)
	}
	p.queue.Replace(j, nodeapi.Superseded)
	p.conditions.Unsuppress(pod.UID)
	return nil
}

// Cancel ends the pre-pull of a pod, and removes its condition. It
// reports whether there was anything to end.
func (p *Puller) Cancel(pod types.NamespacedName) (bool, error) {
	p.disk.Lock()
	defer p.disk.Unlock()
	j, said := p.queue.Find(pod), p.conditions.Suppress(pod)
	if j == nil {
		return said, nil
	}
	p.log.Info("pre-pull is cancelled", "pod", pod.String(), "revision", j.Revision)
	if !j.Automatic {
		return true, p.end(j, nodeapi.Cancelled)
	}
	// Without it on disk, the same pre-pull would begin anew.
	next := j.Clone()
	next.Cancelled = true
	for i := range next.Images {
		next.Images[i].Ready = nil
	}
	if err := p.store.Save(next); err != nil {
		return true, err
	}
	p.queue.Replace(next, nodeapi.Cancelled)
	return true, nil
}

// end forgets a job. p.disk is held.
func (p *Puller) end(j *job.Job, how nodeapi.State) error {
	if err := p.store.Remove(j.UID); err != nil {
		return fmt.Errorf("pod %s: %w", j.Name(), err)
	}
	if how == nodeapi.Superseded && p.pods.all()[j.UID] != nil {
		p.retention.StartGracePeriod(j)
	}
	p.queue.End(j, how)
	p.pods.forget(j.UID)
	return nil
}

// State returns how far the pre-pull of a pod is, and false if there is none.
func (p *Puller) State(pod types.NamespacedName) (nodeapi.ImagePull, bool) { return p.queue.State(pod) }

// States returns all pre-pulls, in the order in which they were asked for.
func (p *Puller) States() []nodeapi.ImagePull { return p.queue.States() }
