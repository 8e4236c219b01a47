package bundle

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// reasonOffered is the reason of PodNeedUpgrade as a bundle sets it.
const reasonOffered = "OfferedByBundle"

// IsOffered reports whether Offered has marked a pod, so that the cloud may have another target for it.
func IsOffered(pod *corev1.Pod) bool {
	need := api.Condition(pod, api.NeedCondition)
	return need != nil && need.Reason == reasonOffered
}

// Offered returns a pod as the controller would have marked it for the revision that a bundle offers while the cloud is away: a copy, or the
// pod itself if none does.
func (s *Store) Offered(pod *corev1.Pod) *corev1.Pod {
	r := s.of(pod)
	if r == nil || s.Online() {
		return pod
	}
	if offers, why := s.offers(r, pod); !offers || why != "" {
		return pod
	}
	target := r.bundle.Target
	target.InPlace = r.bundle.Bases[revisionOf(pod)]
	return api.WithTarget(pod, target, reasonOffered, r.Taken)
}

// of returns the bundle of a pod's workload that counts, nil if there is none.
func (s *Store) of(pod *corev1.Pod) *record {
	r := s.last(ownerOf(pod))
	s.mu.Lock()
	defer s.mu.Unlock()
	if r == nil || s.expired(r, s.now()) != "" {
		return nil
	}
	return r
}

// Images returns those that bundles offer to pods of the node, as pods name them: they stay on the node when the cloud is back, and has yet
// to mark the pods.
func (s *Store) Images() []string {
	var images []string
	pods, _ := s.Pods()
	for _, pod := range pods {
		r := s.of(pod)
		if r == nil {
			continue
		}
		if _, why := s.offers(r, pod); why == "" {
			for _, i := range r.bundle.Target.Images() {
				images = append(images, i.Image)
			}
		}
	}
	return images
}

// offers reports whether a bundle offers a pod its revision, and why the pod cannot have it. Neither is so of a pod that the cloud has
// offered the same: the bundle has its images.
func (s *Store) offers(r *record, pod *corev1.Pod) (offers bool, why string) {
	b := &r.bundle
	base, known := b.Bases[revisionOf(pod)]
	policy, err := api.PolicyOf(pod)
	mark, isMarked := api.NextOf(pod)
	isMarked = isMarked && mark.Revision == b.Target.Revision
	switch {
	case ownerOf(pod) != b.UID:
		return false, "it is of another workload"
	case revisionOf(pod) == b.Target.Revision:
		return false, fmt.Sprintf("it is of revision %s already", b.Target.Revision)
	case err != nil || !policy.InPlace:
		return false, fmt.Sprintf("its %s does not permit upgrades without the cloud, as far as this node knows: the annotation %s: %s does", b.Kind, api.OfflineUpgradeAnnotation, api.OfflineUpgradeInPlace)
	case policy.Newest > b.Target.Number:
		return false, fmt.Sprintf("the cloud's newest revision had number %d when the node was told last, and the bundle brings number %d, which is older", policy.Newest, b.Target.Number)
	case policy.Newest == b.Target.Number && !isMarked:
		return false, fmt.Sprintf("the cloud has another revision with number %d: was the cluster restored from a backup? An admin can make a later revision", policy.Newest)
	case policy.Newest == 0:
		return false, "the cloud has not said what number its newest revision has: the controller there is older than this hub"
	case !known:
		return false, fmt.Sprintf("it is of revision %q, and more than images may differ between that and what the bundle brings", revisionOf(pod))
	}
	for _, c := range base {
		if image := imageOf(pod, c.Name); image != c.From {
			return false, fmt.Sprintf("its container %.63q has image %.200q, and its revision %q has %.200q", c.Name, image, revisionOf(pod), c.From)
		}
	}
	return policy.Newest < b.Target.Number, ""
}

func imageOf(pod *corev1.Pod, container string) string {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == container {
			return pod.Spec.Containers[i].Image
		}
	}
	return ""
}

func ownerOf(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return owner.UID
	}
	return ""
}

func revisionOf(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }
