package rollback

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// Admission is what the apiserver says of the pod that Kubernetes would make of an earlier revision. Whoever rewrites the
// images of new pods may not look at a patch, so the patch has the images as rewritten.
type Admission struct {
	// Images are those of the pod as it would be created, by container; nil if that is not known.
	Images map[string]string
	// Refused is whether it would not be created, and Why has the apiserver's words, or why Images is not known.
	Refused bool
	Why     string
}

// admission is an Admission with the wish that it is about, which is asked for once.
type admission struct {
	Admission
	wish string
}

// Unasked returns the revision that pod's owner wants, if the wish would be granted and Answer has not been called for it,
// else nil.
func (r *Revisions) Unasked(pod *corev1.Pod, policy api.Policy) *appsv1.ControllerRevision {
	d := r.Decide(pod, policy)
	if _, asked := r.admissionOf(pod); asked || d.Revision == "" || d.Done(pod) || !pod.DeletionTimestamp.IsZero() {
		return nil
	}
	return r.history()[d.Revision].object
}

// Answer says what the apiserver makes of the revision that pod's owner wants.
func (r *Revisions) Answer(pod *corev1.Pod, a Admission) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.admissions[pod.UID] = admission{a, pod.Annotations[api.RollbackAnnotation]}
}

// Retain forgets the answers about all pods but these.
func (r *Revisions) Retain(pods []*corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.admissions) == 0 {
		return
	}
	maps.DeleteFunc(r.admissions, func(uid types.UID, _ admission) bool {
		return !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.UID == uid })
	})
}

// admissionOf returns false if Answer has not been called for the wish that pod has. Until then, any image that pod has may
// be what admission makes of the template's.
func (r *Revisions) admissionOf(pod *corev1.Pod) (Admission, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.admissions[pod.UID]
	if !ok || a.wish != pod.Annotations[api.RollbackAnnotation] {
		return Admission{Images: map[string]string{}}, false
	}
	return a.Admission, true
}

// changes returns those of the images want, as they are admitted, that differ from was and that containers lack. Containers
// that the templates do not name are left alone: admission webhooks add them. If it is not known what is admitted, images
// that neither template has are a problem.
func (a Admission) changes(containers []corev1.Container, was, want []api.TargetImage) (changed []api.TargetImage, problem string) {
	for i, w := range want {
		c := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == w.Name })
		image := cmp.Or(a.Images[w.Name], w.Image)
		switch {
		case c < 0:
			return nil, fmt.Sprintf("the pod has no container %s", w.Name)
		case a.Images == nil && containers[c].Image != was[i].Image && containers[c].Image != w.Image:
			return nil, fmt.Sprintf("container %s of the pod has another image than the pod template, and what admission makes of the earlier version is not known: %s", w.Name, a.Why)
		case was[i].Image != w.Image && containers[c].Image != image:
			changed = append(changed, api.TargetImage{Name: w.Name, Image: image})
		}
	}
	return changed, ""
}
