package imagepull

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// Request starts a pre-pull of the target's images. When it returns nil, the request survives a
// crash. A repeated request retries failed images at once, unless the registry has asked to wait,
// and resolves tags again. With imported, the pulls of images that were imported begin again, too, so that what is on the
// node by now is found. The engine says which these are: anybody may request a pre-pull.
func (p *Puller) Request(pod *corev1.Pod, t api.Target, imported bool) error {
	var here []string
	if imported {
		here = p.imported(newJob(pod, t, false))
	}
	p.disk.Lock()
	defer p.disk.Unlock()
	var err error
	if have := p.queue.job(pod.UID); have == nil || have.Cancelled || !have.isFor(pod, t) {
		err = p.start(newJob(pod, t, false))
	} else {
		err = p.save(have) // it may not have been written since an image became ready
	}
	if err == nil {
		p.queue.retryPod(pod.UID, here)
	}
	return err
}

// imported returns the names of a job's images that were imported. The engine does not wait for containerd for long.
func (p *Puller) imported(j *job) []string {
	var names []string
	for _, i := range j.Images {
		names = append(names, i.Name)
	}
	here, err := p.Engine.Imported(context.Background(), names)
	if err != nil {
		p.Logger.Warn("it is not known which images were imported; pulls that are under way go on", "pod", j.name().String(), "err", err)
	}
	return here
}

// start starts a job in place of any other of the same pod. p.disk is held.
func (p *Puller) start(j *job) error {
	if err := p.save(j); err != nil {
		return err
	}
	p.Logger.Info("pre-pull is queued", "pod", j.name().String(), "revision", j.Revision, "images", len(j.Images), "unasked", j.Automatic)
	p.queue.put(j, api.Superseded)
	return nil
}

// save writes the file of a job, with the images that are ready. p.disk is held.
func (p *Puller) save(j *job) error {
	if err := p.files.Put(j.key(), p.queue.file(j)); err != nil {
		return fmt.Errorf("keep the pre-pull of pod %s: %w", j.name(), err)
	}
	return nil
}

// Cancel ends the pre-pull of a pod and removes its condition, until the pod has another target. It reports whether
// the pod had either.
func (p *Puller) Cancel(pod types.NamespacedName) (bool, error) {
	p.disk.Lock()
	defer p.disk.Unlock()
	j := p.queue.find(pod)
	if j == nil {
		return p.cancelCondition(pod), nil
	}
	p.Logger.Info("pre-pull is cancelled", "pod", pod.String(), "revision", j.Revision)
	cancelled := p.queue.file(j)
	cancelled.Cancelled = true
	var err error
	if j.Automatic { // without its file, the job would be created again after a restart
		err = p.files.Put(j.key(), cancelled)
	} else {
		err = p.files.Delete(j.key())
	}
	if err == nil {
		p.queue.put(&cancelled, api.Cancelled)
	}
	return true, err
}

// cancelCondition removes the condition of a pod without pre-pull, and reports whether it had one. p.disk is held.
func (p *Puller) cancelCondition(name types.NamespacedName) bool {
	for _, pod := range p.queue.shown() {
		if pod.Namespace != name.Namespace || pod.Name != name.Name || !isOurs(api.Condition(pod, api.ImageCondition)) {
			continue
		}
		if t, ok, err := api.TargetOf(pod); ok && err == nil {
			cancelled := newJob(pod, t, false)
			cancelled.Cancelled = true
			p.queue.put(cancelled, api.Cancelled)
			return true
		}
	}
	return false
}
