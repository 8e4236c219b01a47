// Package upgrade is what cloud and node say to each other about the upgrade of
// a pod, through the pod itself: the types of its conditions, the form of their
// messages, and the annotation that tells a node which images the new revision
// needs. The controller writes it, the node's hub reads it; neither imports the
// other.
//
// Everything here but Prepulls is a pure function of a pod and safe for concurrent
// use.
package upgrade

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// NeedCondition is True on a pod whose DaemonSet has a newer revision, and
	// False on one that runs the newest. The controller sets it.
	NeedCondition corev1.PodConditionType = "PodNeedUpgrade"

	// ImageCondition is False while the node pulls the images of the target
	// revision, and True once all of them are there. The hub sets it.
	ImageCondition corev1.PodConditionType = "PodImageReady"

	// PrepullAnnotation on a DaemonSet, when "true", has nodes pull the images of a
	// new revision as soon as their pod is marked.
	PrepullAnnotation = "apps.openyurt.io/image-prepull"

	// TargetAnnotation carries a Target, as JSON, on a pod that needs an
	// upgrade, or that is replaced by the controller and whose node is to pull the
	// images first. A node may not read DaemonSets or ControllerRevisions, its own
	// pods it may, and they are in its cache.
	TargetAnnotation = "apps.openyurt.io/upgrade-target"
)

// maxImages is how many images a target may name: more than any pod has, and few
// enough that an annotation somebody made up does not keep a node busy.
const maxImages = 100

// messagePrefix is followed by the hash of a revision: one space, no more.
const messagePrefix = "controllerrevision: "

// Target is the revision a pod would be upgraded to.
type Target struct {
	// Revision is the value that the label controller-revision-hash has on
	// pods of this revision.
	Revision string `json:"revision"`
	// Containers and InitContainers are in the order of the pod template.
	Containers     []Image `json:"containers"`
	InitContainers []Image `json:"initContainers,omitempty"`
	// ImagePullSecrets are names of Secrets in the pod's namespace.
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`
	// MinReadySeconds is that of the DaemonSet, for whoever upgrades the pod and waits
	// until its successor is available. It is no part of the revision.
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// Prepull is since when the node should pull the images without being asked by
	// its owner; nil is never. The controller sets it, by its own clock, in whole
	// seconds, and leaves it as it is while Revision is the same.
	Prepull *metav1.Time `json:"prepull,omitempty"`
}

// Image is the image one container of the target revision runs.
type Image struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

// NewTarget describes the revision with this hash and pod template.
func NewTarget(revision string, template *corev1.PodSpec) Target {
	images := func(containers []corev1.Container) []Image {
		var out []Image
		for _, c := range containers {
			out = append(out, Image{Name: c.Name, Image: c.Image})
		}
		return out
	}
	t := Target{
		Revision:       revision,
		Containers:     images(template.Containers),
		InitContainers: images(template.InitContainers),
	}
	for _, s := range template.ImagePullSecrets {
		t.ImagePullSecrets = append(t.ImagePullSecrets, s.Name)
	}
	return t
}

// Encode returns t as the value of TargetAnnotation. Equal targets have equal
// encodings.
func (t Target) Encode() string {
	b, err := json.Marshal(t)
	if err != nil {
		panic("upgrade: encode target: " + err.Error()) // strings, slices of strings, and a time
	}
	return string(b)
}

// TargetOf reads TargetAnnotation. It returns false when pod has none, and an
// error when pod has one that says nothing usable.
func TargetOf(pod *corev1.Pod) (Target, bool, error) {
	value, ok := pod.Annotations[TargetAnnotation]
	if !ok {
		return Target{}, false, nil
	}
	var t Target
	if err := json.Unmarshal([]byte(value), &t); err != nil {
		return Target{}, true, fmt.Errorf("annotation %s of pod %s/%s: %w", TargetAnnotation, pod.Namespace, pod.Name, err)
	}
	if t.Revision == "" || len(t.Containers) == 0 {
		return Target{}, true, fmt.Errorf("annotation %s of pod %s/%s names no revision or no container", TargetAnnotation, pod.Namespace, pod.Name)
	}
	if n := len(t.Containers) + len(t.InitContainers); n > maxImages {
		return Target{}, true, fmt.Errorf("annotation %s of pod %s/%s names %d images, of at most %d", TargetAnnotation, pod.Namespace, pod.Name, n, maxImages)
	}
	return t, true, nil
}

// Message is the message of both conditions for the revision with this hash.
func Message(revision string) string { return messagePrefix + revision }

// RevisionOf returns the hash a condition's message names, or "" if the message
// has another form.
func RevisionOf(c *corev1.PodCondition) string {
	revision, ok := strings.CutPrefix(c.Message, messagePrefix)
	if !ok {
		return ""
	}
	return revision
}

// Condition returns pod's condition of type t, or nil. It points into pod.
func Condition(pod *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == t {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
