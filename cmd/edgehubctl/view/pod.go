// Package view is what edgehubctl shows: the pods of a node and their upgrades, what a pod that is being replaced waits for, how far
// the pull of images is, and how the hub is doing. It sends no requests.
package view

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/api/podstatus"
)

// Pod is a pod in the output of pods. As JSON it is an interface to scripts:
// fields are added, and never change their meaning.
type Pod struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	// ReadyContainers of Containers are ready; Status and Restarts are those of kubectl
	// get pods.
	ReadyContainers int    `json:"readyContainers"`
	Containers      int    `json:"containers"`
	Status          string `json:"status"`
	Restarts        int32  `json:"restarts"`
	// Started is when kubelet began with the pod.
	Started *time.Time `json:"started,omitempty"`
	PodIP   string     `json:"podIP,omitempty"`
	NodeIP  string     `json:"nodeIP,omitempty"`
	// Images are those of the containers, init containers first.
	Images []ImageChange `json:"images,omitempty"`
	// Revision is what the pod runs.
	Revision string `json:"revision,omitempty"`
	// NeedsUpgrade is null while it is not known.
	NeedsUpgrade *bool `json:"needsUpgrade"`
	// TargetRevision and Since are there for a pod that needs an upgrade.
	TargetRevision string     `json:"targetRevision,omitempty"`
	Since          *time.Time `json:"since,omitempty"`
	// Blocked is why an upgrade would be refused: the node would get no pod of the new version.
	Blocked string `json:"blocked,omitempty"`
	// ImageReady is null where nobody asked for the images of that revision.
	ImageReady *bool `json:"imageReady"`
	// ImageReason is a word for why the images are not ready. ImageBytes of them are on
	// the node, which are ImagePercent of all; that is left out until the registry has
	// sent the size of every image.
	ImageReason  string `json:"imageReason,omitempty"`
	ImageBytes   int64  `json:"imageBytes,omitempty"`
	ImagePercent *int   `json:"imagePercent,omitempty"`
	// UpgradeState is for people: queued, scheduled, held, in progress, upgraded offline, undone or rolled back. HeldUntil is
	// there for a pod on hold.
	UpgradeState string     `json:"upgradeState,omitempty"`
	HeldUntil    *time.Time `json:"heldUntil,omitempty"`
	// Upgrade is an upgrade in place, until the cloud has what runs.
	Upgrade *api.Upgrade `json:"upgrade,omitempty"`
}

// PodOf describes a pod. pulls are all pre-pulls of this node.
func PodOf(pod *corev1.Pod, pulls []api.ImagePull) Pod {
	status := podstatus.Of(pod)
	r := Pod{
		Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID), Revision: RevisionOf(pod),
		ReadyContainers: status.Ready, Containers: status.Containers, Status: status.Status, Restarts: status.Restarts,
		PodIP: pod.Status.PodIP, NodeIP: pod.Status.HostIP, Images: imagesNow(pod),
	}
	if started := pod.Status.StartTime; started != nil {
		r.Started = &started.Time
	}
	need, revision := needOf(pod)
	if need == nil {
		return r
	}
	r.NeedsUpgrade = new(NeedsUpgrade(pod))
	if !*r.NeedsUpgrade {
		return r
	}
	r.TargetRevision, r.Images = revision, imagesAfter(r.Images, pod, revision)
	if target, ok, err := api.TargetOf(pod); ok && err == nil && target.Revision == revision {
		r.Blocked = target.Blocked
	}
	if since := need.LastTransitionTime.Time; !since.IsZero() {
		r.Since = &since
	}
	i := slices.IndexFunc(pulls, func(p api.ImagePull) bool { return p.UID == string(pod.UID) && p.Revision == revision })
	if i < 0 {
		r.addCondition(api.Condition(pod, api.ImageCondition))
	} else {
		r.addPull(&pulls[i])
	}
	return r
}

// addPull adds what the hub knows of the images. It is newer than the pod's condition, which
// the hub cannot update while the cloud is away.
func (r *Pod) addPull(p *api.ImagePull) {
	r.ImageReady = new(p.State == api.Ready)
	if *r.ImageReady {
		return
	}
	r.ImageReason = string(p.State)
	var total int64
	known := true
	for _, i := range p.Images {
		if i.Reason != "" {
			r.ImageReason = i.Reason
		}
		known = known && i.BytesTotal > 0
		r.ImageBytes += i.BytesDone
		total += i.BytesTotal
	}
	if known {
		r.ImagePercent = new(cli.Percent(r.ImageBytes, total))
	}
}

// addCondition adds the pod's condition about images, which may be nil, or about another
// revision.
func (r *Pod) addCondition(image *corev1.PodCondition) {
	if image == nil {
		return
	}
	revision := api.RevisionOf(image)
	ready := image.Status == corev1.ConditionTrue && revision == r.TargetRevision
	r.ImageReady = &ready
	switch {
	case ready:
	case revision != r.TargetRevision:
		r.ImageReason = "OtherRevision"
	default:
		r.ImageReason = image.Reason
	}
}

// needOf returns the controller's condition about pod's upgrade and the revision to upgrade to;
// nil if there is none.
func needOf(pod *corev1.Pod) (need *corev1.PodCondition, revision string) {
	need = api.Condition(pod, api.NeedCondition)
	if need == nil {
		return nil, ""
	}
	return need, api.RevisionOf(need)
}

// NeedsUpgrade reports whether pod needs an upgrade, as far as the controller has marked it. The cloud may not know yet what runs.
func NeedsUpgrade(pod *corev1.Pod) bool {
	need, revision := needOf(pod)
	return need != nil && need.Status == corev1.ConditionTrue && revision != api.RunsOffline(pod)
}

// RevisionOf returns the revision that a pod runs.
func RevisionOf(pod *corev1.Pod) string {
	return cmp.Or(api.RunsOffline(pod), pod.Labels[appsv1.ControllerRevisionHashLabelKey])
}

// ownerOf returns the UID of pod's controlling owner, "" if there is none.
func ownerOf(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return owner.UID
	}
	return ""
}
