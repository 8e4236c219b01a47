// Package job defines the pre-pull of one pod, and stores it across restarts.
package job

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Job is the pre-pull of one pod to one target revision. It is stored on disk and contains no
// secret. A Job in the queue is read-only: changes are made to a copy, which can be written to
// disk without a lock.
type Job struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	// Owner is the DaemonSet or StatefulSet, whose next pod needs the images.
	Owner types.UID `json:"owner"`
	// Version is the resourceVersion of the pod when the job was created. An older state of the
	// pod does not end the job.
	Version   string    `json:"version,omitempty"`
	Revision  string    `json:"revision"`
	Requested time.Time `json:"requested"`
	// Automatic marks a job that a rollout has asked for, and not the node's owner.
	Automatic bool `json:"unasked,omitempty"`
	// Cancelled keeps an automatic job from being created again.
	Cancelled bool     `json:"cancelled,omitempty"`
	Secrets   []string `json:"secrets,omitempty"`
	// Images are in the order of api.Target.Images, each once.
	Images []Image `json:"images"`
	// PodsGeneration is how often the watch had shown the node's pods when the job was created; 0
	// for a job of an earlier process.
	PodsGeneration int `json:"-"`
}

// Image is one image of a job.
type Image struct {
	Image string `json:"image"`
	Name  string `json:"-"` // in containerd; set by New and Load
	// Ready is the image, once it is on the node.
	Ready *engineapi.Image `json:"ready,omitempty"`
}

// New returns the job of a pod for the images of a target.
func New(pod *corev1.Pod, t api.Target, automatic bool, now time.Time) *Job {
	j := &Job{
		UID: pod.UID, Namespace: pod.Namespace, Pod: pod.Name, Owner: OwnerOf(pod), Version: pod.ResourceVersion,
		Revision: t.Revision, Requested: now.UTC().Truncate(time.Second), Automatic: automatic, Secrets: secretsOf(pod, t),
	}
	for _, i := range t.Images() {
		if !slices.ContainsFunc(j.Images, func(w Image) bool { return w.Image == i.Image }) {
			j.Images = append(j.Images, Image{Image: i.Image, Name: ImageName(i.Image)})
		}
	}
	return j
}

// IsFor reports whether New would return an equal job for pod and t.
func (j *Job) IsFor(pod *corev1.Pod, t api.Target) bool {
	same := New(pod, t, false, time.Time{})
	return j.Revision == t.Revision && slices.Equal(j.Secrets, same.Secrets) &&
		slices.EqualFunc(j.Images, same.Images, func(a, b Image) bool { return a.Image == b.Image })
}

// IsNewer reports whether pod may be at least as new as the state that j was created from.
func (j *Job) IsNewer(pod *corev1.Pod) bool {
	before, err := strconv.ParseUint(j.Version, 10, 64)
	now, errNow := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	return err != nil || errNow != nil || now >= before
}

// secretsOf returns the names of the secrets that the new pod will have: the template's and, if it
// has none, the service account's. A node may not read service accounts, but the present pod has
// their secrets. Secrets that the new pod will not have do no harm.
func secretsOf(pod *corev1.Pod, t api.Target) []string {
	names := slices.Clone(t.ImagePullSecrets)
	for _, s := range pod.Spec.ImagePullSecrets {
		if !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	return names
}

// OwnerOf returns the UID of pod's controller, or "".
func OwnerOf(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return owner.UID
	}
	return ""
}

// Name returns the name of the pod.
func (j *Job) Name() types.NamespacedName {
	return types.NamespacedName{Namespace: j.Namespace, Name: j.Pod}
}

// Clone returns a copy that may be changed.
func (j *Job) Clone() *Job {
	c := *j
	c.Images = slices.Clone(j.Images)
	return &c
}

// With returns a copy in which the image of this name has the given Ready, which may be nil.
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

// ImageName returns the name in containerd of an image of a pod. It does not change an invalid
// name, which the engine will report.
func ImageName(image string) string {
	name, err := engineapi.Normalize(image)
	if err != nil {
		return image
	}
	return name
}
