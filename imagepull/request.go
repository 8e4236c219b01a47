package imagepull

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/job"
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
// forgotten any more. Asked for again, what failed is tried at once, unless the
// registry wants to be left alone, and tags are looked at again.
func (p *Puller) Request(pod *corev1.Pod, t upgrade.Target) error {
	p.disk.Lock()
	defer p.disk.Unlock()
	have := p.job(pod.UID)
	if have == nil || have.Cancelled || !have.IsFor(pod, t) {
		if err := p.start(pod, t, false); err != nil {
			return err
		}
	} else if err := p.store.Save(have); err != nil { // it may have been kept in memory only
		return err
	}
	p.hurry(pod.UID)
	return nil
}

// start makes a job, in place of any other for the same pod. p.disk is held.
func (p *Puller) start(pod *corev1.Pod, t upgrade.Target, unasked bool) error {
	now := time.Now()
	j := job.New(pod, t, unasked, now)
	p.mu.Lock()
	for i := range j.Images {
		if t := p.tasks[j.Images[i].Name]; t != nil && t.ready != nil {
			j.Images[i].Ready = t.ready
		}
	}
	j.Seen = p.seen
	p.mu.Unlock()
	if err := p.store.Save(j); err != nil {
		return err
	}
	p.log.Info("pre-pull is queued", "pod", j.Name().String(), "revision", j.Revision, "images", len(j.Images), "unasked", unasked)
	p.mu.Lock()
	defer p.mu.Unlock()
	if before := p.jobs[pod.UID]; before != nil {
		p.endLocked(before, nodeapi.Superseded, now)
		p.lingerLocked(before, now)
	}
	delete(p.dismissed, pod.UID)
	p.jobs[pod.UID] = j
	p.refreshLocked(now)
	return nil
}

// hurry has what failed tried at once, and asks registries what is there by tag.
func (p *Puller) hurry(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, w := range p.jobs[uid].Images {
		if t := p.tasks[w.Name]; t != nil && !t.running {
			t.hurry(now)
			t.again = t.ready != nil && !strings.Contains(w.Image, "@")
		}
	}
	p.wakeLocked()
}

// linger is how long images are held that are of a target which the pod has no
// longer: most of the next one is often the same.
const linger = 10 * time.Minute

func (p *Puller) lingerLocked(j *job.Job, now time.Time) {
	for _, w := range j.Images {
		p.lingering[w.Name] = now.Add(linger)
	}
}

// Cancel ends the pre-pull of a pod, and takes back what the pod says of it. It
// reports whether there was anything to end.
func (p *Puller) Cancel(pod types.NamespacedName) (bool, error) {
	p.disk.Lock()
	defer p.disk.Unlock()
	p.mu.Lock()
	j, said := p.findLocked(pod), p.dismissLocked(pod)
	p.mu.Unlock()
	if j == nil {
		return said, nil
	}
	p.log.Info("pre-pull is cancelled", "pod", pod.String(), "revision", j.Revision)
	if !j.Unasked {
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
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(j, nodeapi.Cancelled, time.Now())
	p.jobs[j.UID] = next
	p.refreshLocked(time.Now())
	return true, nil
}

// dismissLocked has a pod say nothing of images until its target changes. It reports
// whether it says anything now that is ours.
func (p *Puller) dismissLocked(name types.NamespacedName) bool {
	for uid, pod := range p.pods {
		if pod.Namespace != name.Namespace || pod.Name != name.Name {
			continue
		}
		have, ours := saidBy(pod)
		if t, ok, err := upgrade.TargetOf(pod); ok && err == nil {
			p.dismissed[uid] = t.Revision
			p.wakeLocked()
			return ours && have != (saying{})
		}
	}
	return false
}

// end forgets a job. p.disk is held.
func (p *Puller) end(j *job.Job, how nodeapi.State) error {
	if err := p.store.Remove(j.UID); err != nil {
		return fmt.Errorf("pod %s: %w", j.Name(), err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(j, how, time.Now())
	if how == nodeapi.Superseded && p.pods[j.UID] != nil {
		p.lingerLocked(j, time.Now())
	}
	delete(p.jobs, j.UID)
	delete(p.gone, j.UID)
	p.refreshLocked(time.Now())
	return nil
}

// endLocked tells those who watch j how it ended.
func (p *Puller) endLocked(j *job.Job, how nodeapi.State, now time.Time) {
	for uid, e := range p.ended {
		if now.Sub(e.at) > endingKept {
			delete(p.ended, uid)
		}
	}
	if j.Cancelled {
		return
	}
	last := p.stateLocked(j)
	if last.State != nodeapi.Ready {
		last.State = how
	}
	p.ended[j.UID] = ending{last, now}
}

func (p *Puller) job(uid types.UID) *job.Job {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.jobs[uid]
}

// findLocked returns the newest job of the pod with this name, or nil.
func (p *Puller) findLocked(pod types.NamespacedName) *job.Job {
	var found *job.Job
	for _, j := range p.sortedLocked() {
		if j.Name() == pod && !j.Cancelled {
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
