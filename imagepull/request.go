package imagepull

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// ending is how a job ended, for those who watch it.
type ending struct {
	last nodeapi.ImagePull
	at   time.Time
}

// endingKept is how long an ending is remembered.
const endingKept = time.Minute

// Request has the images of pod's target pulled. When it returns nil, that is not
// forgotten any more. Asked for again, what failed is tried at once.
func (p *Puller) Request(pod *corev1.Pod, t upgrade.Target) error {
	p.disk.Lock()
	defer p.disk.Unlock()
	if have := p.job(pod.UID); have != nil && have.Revision == t.Revision && !have.Cancelled {
		p.hurry(have)
		return nil
	}
	return p.start(pod, t, false)
}

// start makes a job, in place of any other for the same pod. p.disk is held.
func (p *Puller) start(pod *corev1.Pod, t upgrade.Target, unasked bool) error {
	now := time.Now()
	j := newJob(pod, t, unasked, now)
	p.mu.Lock()
	for i, w := range j.Images {
		if t := p.tasks[nameOf(w.Image)]; t != nil && t.ready != nil {
			j.Images[i].Ready = t.ready
		}
	}
	p.mu.Unlock()
	if err := p.folder.save(j); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(p.jobs[pod.UID], nodeapi.Superseded, now)
	p.jobs[pod.UID] = j
	p.refreshLocked(now)
	p.log.Info("pre-pull is queued", "pod", j.name().String(), "revision", j.Revision, "images", len(j.Images), "unasked", unasked)
	return nil
}

// hurry has what failed tried at once.
func (p *Puller) hurry(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range j.Images {
		if t := p.tasks[nameOf(w.Image)]; t != nil && !t.running {
			t.due, t.failures = time.Now(), 0
		}
	}
	p.wakeLocked()
}

// Cancel ends the pre-pull of a pod. It reports whether there was one.
func (p *Puller) Cancel(pod types.NamespacedName) (bool, error) {
	p.disk.Lock()
	defer p.disk.Unlock()
	p.mu.Lock()
	j := p.findLocked(pod)
	p.mu.Unlock()
	if j == nil {
		return false, nil
	}
	p.log.Info("pre-pull is cancelled", "pod", pod.String(), "revision", j.Revision)
	if !j.Unasked {
		return true, p.end(j, nodeapi.Cancelled)
	}
	// Without it on disk, the same pre-pull would begin anew.
	next := j.clone()
	next.Cancelled = true
	for i := range next.Images {
		next.Images[i].Ready = nil
	}
	if err := p.folder.save(next); err != nil {
		return true, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(j, nodeapi.Cancelled, time.Now())
	p.jobs[j.UID] = next
	p.refreshLocked(time.Now())
	return true, nil
}

// end forgets a job. p.disk is held.
func (p *Puller) end(j *job, how nodeapi.State) error {
	if err := p.folder.remove(j.UID); err != nil {
		return fmt.Errorf("pod %s: %w", j.name(), err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(j, how, time.Now())
	delete(p.jobs, j.UID)
	delete(p.gone, j.UID)
	p.refreshLocked(time.Now())
	return nil
}

// endLocked tells those who watch j, which may be nil, how it ended.
func (p *Puller) endLocked(j *job, how nodeapi.State, now time.Time) {
	for uid, e := range p.ended {
		if now.Sub(e.at) > endingKept {
			delete(p.ended, uid)
		}
	}
	if j == nil || j.Cancelled {
		return
	}
	last := p.stateLocked(j)
	if last.State != nodeapi.Ready {
		last.State = how
	}
	p.ended[j.UID] = ending{last, now}
}

func (p *Puller) job(uid types.UID) *job {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.jobs[uid]
}

// findLocked returns the newest job of the pod with this name, or nil.
func (p *Puller) findLocked(pod types.NamespacedName) *job {
	var found *job
	for _, j := range p.sortedLocked() {
		if j.name() == pod && !j.Cancelled {
			found = j
		}
	}
	return found
}

// State returns how far the pre-pull of a pod is, and false if there is none.
func (p *Puller) State(pod types.NamespacedName) (nodeapi.ImagePull, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := p.findLocked(pod)
	if j == nil {
		return nodeapi.ImagePull{}, false
	}
	return p.stateLocked(j), true
}

// States returns all pre-pulls, in the order in which they were asked for.
func (p *Puller) States() []nodeapi.ImagePull {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := []nodeapi.ImagePull{}
	for _, j := range p.sortedLocked() {
		if !j.Cancelled {
			list = append(list, p.stateLocked(j))
		}
	}
	return list
}
