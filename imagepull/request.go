package imagepull

import (
	"context"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/job"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Request starts a pre-pull of the target's images. When it returns nil, the request survives a
// crash. A repeated request retries failed images at once, unless the registry has asked to wait,
// and resolves tags again.
func (p *Puller) Request(pod *corev1.Pod, t api.Target) error {
	p.disk.Lock()
	defer p.disk.Unlock()
	have := p.queue.Job(pod.UID)
	if have == nil || have.Cancelled || !have.IsFor(pod, t) {
		if err := p.start(pod, t, false); err != nil {
			return err
		}
	} else if err := p.store.Save(have); err != nil { // an earlier Save may have failed
		return err
	}
	p.queue.RetryNow(pod.UID)
	return nil
}

// start creates a job and replaces any other of the same pod. p.disk is held.
func (p *Puller) start(pod *corev1.Pod, t api.Target, automatic bool) error {
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
	p.queue.Replace(j, api.Superseded)
	p.conditions.Unsuppress(pod.UID)
	return nil
}

// Cancel ends the pre-pull of a pod and removes its condition. It reports whether the pod had
// either.
func (p *Puller) Cancel(pod types.NamespacedName) (bool, error) {
	p.disk.Lock()
	defer p.disk.Unlock()
	j, hadCondition := p.queue.Find(pod), p.conditions.Suppress(pod)
	if j == nil {
		return hadCondition, nil
	}
	p.log.Info("pre-pull is cancelled", "pod", pod.String(), "revision", j.Revision)
	if !j.Automatic {
		return true, p.end(j, api.Cancelled)
	}
	// The cancelled job stays on disk, or the next reconciliation would create it again.
	next := j.Clone()
	next.Cancelled = true
	for i := range next.Images {
		next.Images[i].Ready = nil
	}
	if err := p.store.Save(next); err != nil {
		return true, err
	}
	p.queue.Replace(next, api.Cancelled)
	return true, nil
}

// end removes a job. p.disk is held.
func (p *Puller) end(j *job.Job, how api.PullState) error {
	if err := p.store.Remove(j.UID); err != nil {
		return fmt.Errorf("pod %s: %w", j.Name(), err)
	}
	if how == api.Superseded && p.pods.all()[j.UID] != nil {
		p.retention.StartGracePeriod(j)
	}
	p.queue.End(j, how)
	delete(p.missing, j.UID)
	return nil
}

// State returns the state of a pod's pre-pull, and false if the pod has none.
func (p *Puller) State(pod types.NamespacedName) (api.ImagePull, bool) { return p.queue.State(pod) }

// States returns all pre-pulls, in the order of their requests.
func (p *Puller) States() []api.ImagePull { return p.queue.States() }

// Follow calls each with the current state of a pod's pre-pull and after each change, at most once
// every pause, except for the last state. It returns when the pre-pull, ctx or Run has ended, when
// each returns false, or when there is no pre-pull.
func (p *Puller) Follow(ctx context.Context, pod types.NamespacedName, pause time.Duration, each func(api.ImagePull) bool) {
	j := p.queue.Find(pod)
	if j == nil {
		return
	}
	var sent api.ImagePull
	var sentAt time.Time
	for {
		changed := p.queue.Changed()
		state, over := p.queue.Status(j)
		pending := !reflect.DeepEqual(state, sent)
		if wait := pause - time.Since(sentAt); pending && (over || wait <= 0) {
			if sent, sentAt = state, time.Now(); !each(state) {
				return
			}
			pending = false
		}
		if over {
			return
		}
		var timer <-chan time.Time
		if pending {
			timer = time.After(pause - time.Since(sentAt))
		}
		select {
		case <-ctx.Done():
			return
		case <-p.stopped:
			return
		case <-changed:
		case <-timer:
		}
	}
}
