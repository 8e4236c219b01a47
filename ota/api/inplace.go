package api

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An upgrade in place is one that the node carries out without the cloud: the pod stays, and kubelet restarts the containers
// whose images differ. The cloud permits it beforehand (Target.InPlace), and follows afterwards: the controller gives the pod
// the images that it runs.
const (
	// OfflineUpgradeAnnotation on a DaemonSet or StatefulSet with the strategy OTA is what an upgrade does that is
	// requested while the cloud is away: OfflineUpgradeQueue, the default, or OfflineUpgradeInPlace.
	OfflineUpgradeAnnotation = "apps.openyurt.io/offline-upgrade"

	// UpgradedOfflineAnnotation is an OfflineUpgrade as JSON. It is on a pod from the return of the cloud until the pod has
	// the images that it runs. The hub sets it.
	UpgradedOfflineAnnotation = "apps.openyurt.io/upgraded-offline"

	// UpgradedOfflineCondition is True on a pod that runs another revision than it was created or last patched with, since
	// its owner upgraded it without the cloud, and stays True when it has been reconciled; Unknown while it is not known yet
	// whether the new version works; False if the node went back, with the reason. Its message is that of NeedCondition,
	// followed, if it is False, by what happened. The hub sets it.
	UpgradedOfflineCondition corev1.PodConditionType = "PodUpgradedOffline"

	// ReconciledCondition is False on a pod that was upgraded offline and cannot be given the images that it runs, or whose node does
	// not report them. Pods without such a problem have none. The controller sets it.
	ReconciledCondition corev1.PodConditionType = "PodOfflineUpgradeReconciled"
)

// Values of OfflineUpgradeAnnotation.
const (
	OfflineUpgradeQueue   = "Queue"
	OfflineUpgradeInPlace = "InPlace"
)

// Reasons of UpgradedOfflineCondition: of one that is Unknown, two of one that is True, and of one that is False.
const (
	ReasonInProbation = "InProbation"

	ReasonPassed     = "Passed"     // the pod has the old images in the cloud
	ReasonReconciled = "Reconciled" // it has the new ones

	ReasonCrashed     = "Crashed"     // a container has ended again and again
	ReasonNotReady    = "NotReady"    // it was not Ready, or had not started, in time
	ReasonNoImage     = "NoImage"     // kubelet could not use an image
	ReasonRebooted    = "Rebooted"    // the machine started anew several times meanwhile
	ReasonCheckFailed = "CheckFailed" // a check of the node's owner did not pass, or could not be run
	ReasonUndone      = "UndoneByOwner"
	ReasonCloudOthers = "ChangedInCloud" // somebody gave the pod other images there
)

// Reasons of ReconciledCondition.
const (
	ReasonReportInvalid   = "InvalidReport"
	ReasonRevisionUnknown = "UnknownRevision" // not in the workload's history
	ReasonMoreThanImages  = "NotInPlace"
	ReasonImagesDiffer    = "ImagesDiffer" // the images that it runs are not those of the revision as it is admitted now
	ReasonPatchRefused    = "NotAdmitted"
	ReasonNotAllowed      = "NotPermitted" // the workload does not permit upgrades in place any more
	ReasonNoReport        = "NoReport"     // the node has been Ready for long, and does not report what became of the upgrade
)

// InPlace is how an upgrade goes on that a node carries out without the cloud.
type InPlace struct {
	State InPlaceState `json:"state"`
	// Images are those that change.
	Images []ImageChange `json:"images"`
	// Until is by when it is known whether the new version works, about: only the time in which the hub runs counts. Only
	// InProbation has it, and not while the owner's checks run.
	Until *time.Time `json:"until,omitempty"`
	// Reason is that of UpgradedOfflineCondition if that is False.
	Reason string `json:"reason,omitempty"`
}

// InPlaceState is the state of an upgrade in place.
type InPlaceState string

// The states.
const (
	InProbation InPlaceState = "InProbation" // it is not known yet whether the new version works
	Passed      InPlaceState = "Passed"      // it does, and the cloud has yet to follow
	Reconciled  InPlaceState = "Reconciled"  // the cloud has what runs: the new images, or others with ReasonCloudOthers
	Undoing     InPlaceState = "Undoing"     // kubelet is starting the earlier version again
	Undone      InPlaceState = "Undone"      // that runs
)

// OfflineInPlace ends the answer to a POST of an upgrade that has begun in place.
const OfflineInPlace = " (offline, in place)"

// RunsOffline returns the revision that a pod runs if the cloud has another one of it, by UpgradedOfflineCondition, or "".
func RunsOffline(pod *corev1.Pod) string {
	c := Condition(pod, UpgradedOfflineCondition)
	if c == nil || c.Status != corev1.ConditionTrue || c.Reason != ReasonPassed {
		return ""
	}
	return RevisionOf(c)
}

// ParseOfflineUpgrade reads OfflineUpgradeAnnotation of a workload.
func ParseOfflineUpgrade(annotations map[string]string) (inPlace bool, err error) {
	value, ok := annotations[OfflineUpgradeAnnotation]
	switch value = strings.TrimSpace(value); {
	case !ok, strings.EqualFold(value, OfflineUpgradeQueue):
		return false, nil
	case strings.EqualFold(value, OfflineUpgradeInPlace):
		return true, nil
	}
	return false, fmt.Errorf("annotation %s is %.60q: write %s or %s, or remove it", OfflineUpgradeAnnotation, value, OfflineUpgradeInPlace, OfflineUpgradeQueue)
}

// ImageChange is another image of one container of a pod.
type ImageChange struct {
	Name string `json:"name"` // of the container
	// From and To are the images as the pod's spec names them. kubelet compares these strings.
	From string `json:"from"`
	To   string `json:"to"`
}

// OfflineUpgrade is what the hub reports of a pod that runs another revision than it has in the cloud. An admission policy reads
// its JSON as text: the revision comes first.
type OfflineUpgrade struct {
	Revision string `json:"revision"` // that the pod runs
	From     string `json:"from"`     // that it has in the cloud
	// Images are those of the containers that differ, as the pod runs them.
	Images []TargetImage `json:"images"`
	Since  metav1.Time   `json:"since"` // by the node's clock
}

// Encode returns u as the value of UpgradedOfflineAnnotation.
func (u OfflineUpgrade) Encode() string { return encode(u) }

// OfflineUpgradeOf reads a pod's UpgradedOfflineAnnotation, and returns false without one.
func OfflineUpgradeOf(pod *corev1.Pod) (OfflineUpgrade, bool, error) {
	var u OfflineUpgrade
	ok, err := decode(pod, UpgradedOfflineAnnotation, &u)
	if err == nil && ok && (u.Revision == "" || len(u.Images) == 0 || len(u.Images) > maxImages) {
		err = fmt.Errorf("annotation %s of pod %s/%s names no revision, no image, or more than %d", UpgradedOfflineAnnotation, pod.Namespace, pod.Name, maxImages)
	}
	return u, ok, err
}

// Errors of InPlaceOf.
var (
	errNotMarked = errors.New("its DaemonSet or StatefulSet does not permit it, or edgehub-controller has not found out whether it is possible")
	errNotAsSeen = errors.New("the pod has changed since edgehub-controller found that it is possible")
)

// InPlaceOf returns what an upgrade in place of pod to t changes. The error is why there can be none, one line for people.
func InPlaceOf(pod *corev1.Pod, t Target) ([]ImageChange, error) {
	switch {
	case t.NotInPlace != "":
		return nil, errors.New(t.NotInPlace)
	case len(t.InPlace) == 0:
		return nil, errNotMarked
	}
	for _, c := range t.InPlace {
		i := slices.IndexFunc(pod.Spec.Containers, func(have corev1.Container) bool { return have.Name == c.Name })
		if i < 0 || pod.Spec.Containers[i].Image != c.From || c.From == c.To || c.To == "" {
			return nil, errNotAsSeen
		}
	}
	if problem := NotInPlace(pod, t.InPlace); problem != "" {
		return nil, errors.New(problem)
	}
	return slices.Clone(t.InPlace), nil
}

// NotInPlace returns why kubelet could not replace these images of pod and, if need be, the new ones by the old ones; "" if it
// can. It is a part of what decides that: node and controller both ask it.
func NotInPlace(pod *corev1.Pod, changes []ImageChange) string {
	switch {
	case pod.DeletionTimestamp != nil:
		return "the pod is being deleted"
	case pod.Status.Phase == corev1.PodFailed, pod.Status.Phase == corev1.PodSucceeded:
		return "the pod has ended"
	case pod.Annotations[corev1.MirrorPodAnnotationKey] != "":
		return "it is a static pod"
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		changed := slices.ContainsFunc(changes, func(one ImageChange) bool { return one.Name == c.Name })
		switch {
		case c.RestartPolicy != nil || len(c.RestartPolicyRules) > 0:
			return fmt.Sprintf("container %s has a restart policy of its own", c.Name)
		case changed && c.ImagePullPolicy == corev1.PullAlways:
			return fmt.Sprintf("container %s pulls its image at each start (imagePullPolicy: Always)", c.Name)
		}
	}
	if pod.Spec.RestartPolicy != corev1.RestartPolicyAlways && pod.Spec.RestartPolicy != "" {
		return fmt.Sprintf("the pod's restartPolicy is %s", pod.Spec.RestartPolicy)
	}
	return ""
}
