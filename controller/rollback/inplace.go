package rollback

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// InPlace is the upgrade of a pod that its node may carry out while the cloud is away. The zero value is none.
type InPlace struct {
	Revision string
	Changes  []api.ImageChange
}

// InPlace returns the upgrade in place of pod to a target, or why it cannot be done in place. What only the whole pod tells,
// api.NotInPlace finds in what the apiserver returns of the patch.
func (r *Revisions) InPlace(pod *corev1.Pod, target api.Target) (_ InPlace, problem string) {
	own, want := r.history()[revisionOf(pod)], r.history()[target.Revision]
	if problem := r.moreThanContainers(own, want); problem != "" {
		return InPlace{}, problem
	}
	out := InPlace{Revision: target.Revision}
	for i, w := range want.target.Containers {
		was := own.target.Containers[i].Image // only images differ
		at := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == w.Name })
		admitted := slices.IndexFunc(target.Containers, func(c api.TargetImage) bool { return c.Name == w.Name })
		switch {
		case at < 0:
			return InPlace{}, fmt.Sprintf("the pod has no container %s", w.Name)
		case pod.Spec.Containers[at].Image != was:
			return InPlace{}, fmt.Sprintf("container %s has another image than its revision: somebody, or an admission policy, has changed it", w.Name)
		case was == w.Image:
		case admitted < 0 || target.Containers[admitted].Image != w.Image:
			return InPlace{}, fmt.Sprintf("an admission policy gives new pods another image for container %s than the pod template", w.Name)
		default:
			out.Changes = append(out.Changes, api.ImageChange{Name: w.Name, From: was, To: w.Image})
		}
	}
	if len(out.Changes) == 0 {
		return InPlace{}, "no image of a container differs between the two revisions"
	}
	return out, api.NotInPlace(pod, out.Changes)
}

// moreThanContainers returns what differs between two revisions besides the images of ordinary containers, or "".
func (r *Revisions) moreThanContainers(own, want *revision) string {
	if problem := r.notInPlace(own, want, func() bool { return true }); problem != "" {
		return problem
	}
	if !slices.Equal(own.sidecars, want.sidecars) {
		return "the image of a native sidecar differs between the two revisions"
	}
	return ""
}

// Patch returns the patch that the pod would get after its upgrade; see [Return.Patch].
func (u InPlace) Patch(pod *corev1.Pod) []byte {
	return patchTo(u.Revision, pod, "", changes{Containers: u.Images()})
}

// Images returns those that the pod would get.
func (u InPlace) Images() (images []api.TargetImage) {
	for _, c := range u.Changes {
		images = append(images, api.TargetImage{Name: c.Name, Image: c.To})
	}
	return images
}

// Rewritten returns why an upgrade would change other images than it names, where admitted is what the apiserver returns of its
// patch; "" if it would not. kubelet would restart containers once more.
func Rewritten(pod, admitted *corev1.Pod, want []api.TargetImage) string {
	images := map[string]string{}
	for i := range pod.Spec.Containers {
		images[pod.Spec.Containers[i].Name] = pod.Spec.Containers[i].Image
	}
	for _, w := range want {
		images[w.Name] = w.Image
	}
	for i := range admitted.Spec.Containers {
		if c := &admitted.Spec.Containers[i]; c.Image != images[c.Name] {
			return fmt.Sprintf("admission changes the image of container %s from %.200s to %.200s", c.Name, images[c.Name], c.Image)
		}
	}
	return ""
}
