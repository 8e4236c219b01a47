// Package job is one pod and the revision whose images it is to find on its node, and
// the folder where that is kept across restarts.
package job

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// Job is one pod and the revision whose images it is to find on the node. It is
// what is kept on disk; nothing in it is a secret. A job in memory is not changed:
// a change is a copy, so that it can be written without a lock.
type Job struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	// Owner is the DaemonSet, whose next pod is the one that the images are for.
	Owner types.UID `json:"owner"`
	// Version is the resourceVersion of the pod that the job was made from: an older
	// state of the pod is no reason to end the job.
	Version   string    `json:"version,omitempty"`
	Revision  string    `json:"revision"`
	Requested time.Time `json:"requested"`
	// Automatic marks a job that a rollout asks for, and not the node's owner.
	Automatic bool `json:"unasked,omitempty"`
	// Cancelled keeps an automatic job from being made again.
	Cancelled bool     `json:"cancelled,omitempty"`
	Secrets   []string `json:"secrets,omitempty"`
	// Images are each once, in the order of the containers.
	Images []Image `json:"images"`
	// PodsGeneration is that of the node's pods when the job was made; 0 for a job of an
	// earlier process.
	PodsGeneration int `json:"-"`
}

// Image is one image of a job.
type Image struct {
	Image string `json:"image"`
	Name  string `json:"-"` // in containerd; set by New and Load
	// Ready is the image, once it is on the node.
	Ready *engineapi.Image `json:"ready,omitempty"`
}

// New returns the job of a pod for the images of a target. automatic: a rollout asks for it, and
// not the owner of the node.
func New(pod *corev1.Pod, t upgrade.Target, automatic bool, now time.Time) *Job {
	j := &Job{
		UID: pod.UID, Namespace: pod.Namespace, Pod: pod.Name, Owner: OwnerOf(pod), Version: pod.ResourceVersion,
		Revision: t.Revision, Requested: now.UTC().Truncate(time.Second), Automatic: automatic, Secrets: secretsOf(pod, t),
	}
	for _, i := range slices.Concat(t.InitContainers, t.Containers) {
		if !slices.ContainsFunc(j.Images, func(w Image) bool { return w.Image == i.Image }) {
			j.Images = append(j.Images, Image{Image: i.Image, Name: ImageName(i.Image)})
		}
	}
	return j
}

// IsFor reports whether j is what would be made anew of pod and t.
func (j *Job) IsFor(pod *corev1.Pod, t upgrade.Target) bool {
	same := New(pod, t, false, time.Time{})
	return j.Revision == t.Revision && slices.Equal(j.Secrets, same.Secrets) &&
		slices.EqualFunc(j.Images, same.Images, func(a, b Image) bool { return a.Image == b.Image })
}

// IsNewer reports whether pod may be of a later state than the one j was made from.
func (j *Job) IsNewer(pod *corev1.Pod) bool {
	before, err := strconv.ParseUint(j.Version, 10, 64)
	now, errNow := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	return err != nil || errNow != nil || now >= before
}

// secretsOf names the secrets that the new pod will have: the template's and, where
// it has none, those of the service account, which are on the present pod: a node
// may not read service accounts. More than the new pod has does no harm.
func secretsOf(pod *corev1.Pod, t upgrade.Target) []string {
	names := slices.Clone(t.ImagePullSecrets)
	for _, s := range pod.Spec.ImagePullSecrets {
		if !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	return names
}

// OwnerOf is the UID of pod's controller, or "".
func OwnerOf(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return owner.UID
	}
	return ""
}

// Name is that of the pod.
func (j *Job) Name() types.NamespacedName {
	return types.NamespacedName{Namespace: j.Namespace, Name: j.Pod}
}

// Clone returns a copy that may be changed.
func (j *Job) Clone() *Job {
	c := *j
	c.Images = slices.Clone(j.Images)
	return &c
}

// With returns a copy in which the image of this name is ready, or no longer is.
func (j *Job) With(name string, ready *engineapi.Image) *Job {
	c := j.Clone()
	for i := range c.Images {
		if c.Images[i].Name == name {
			c.Images[i].Ready = ready
		}
	}
	return c
}

// Wants reports whether the image of this name is one of the job's.
func (j *Job) Wants(name string) bool {
	return !j.Cancelled && slices.ContainsFunc(j.Images, func(w Image) bool { return w.Name == name })
}

// ImageName is the name that an image has in containerd, whatever it is called in a
// pod. An invalid name is returned as it is: the engine reports what is wrong with it.
func ImageName(image string) string {
	name, err := engineapi.Normalize(image)
	if err != nil {
		return image
	}
	return name
}
