package imagepull

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

// job is the pre-pull of one pod to one target revision. Its exported fields are its file, which has no
// secret, and do not change: a request for something else makes another job.
type job struct {
	UID       types.UID `json:"-"` // the file's name has both
	Namespace string    `json:"-"`
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
	// Cancelled keeps an automatic job from being created again, and the pod without condition until it has
	// another target. Such a job wants no image.
	Cancelled bool     `json:"cancelled,omitempty"`
	Secrets   []string `json:"secrets,omitempty"`
	// Images are in the order of api.Target.Images, each once.
	Images []jobImage `json:"images"`

	missing time.Time // since when the pod has been gone while the cloud could be reached; guarded by Puller.disk
	// queue.mu guards these:
	seen bool           // the watch has shown the pod, so that it is gone if the watch shows it no more
	last *api.ImagePull // the state in which it has ended; nil: it has not
}

// jobImage is one image of a job.
type jobImage struct {
	Image string `json:"image"`
	Name  string `json:"-"` // in containerd
	// Ready is the image if it was on the node when the file was written. In memory, its task knows that.
	Ready *engineapi.Image `json:"ready,omitempty"`
}

// newJob returns the job of a pod for the images of a target.
func newJob(pod *corev1.Pod, t api.Target, automatic bool) *job {
	j := &job{
		UID: pod.UID, Namespace: pod.Namespace, Pod: pod.Name, Version: pod.ResourceVersion, Revision: t.Revision,
		Requested: time.Now().UTC().Truncate(time.Second), Automatic: automatic, Secrets: secretsOf(pod, t),
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		j.Owner = owner.UID
	}
	for _, i := range t.Images() {
		if !slices.ContainsFunc(j.Images, func(w jobImage) bool { return w.Image == i.Image }) {
			j.Images = append(j.Images, jobImage{Image: i.Image, Name: imageName(i.Image)})
		}
	}
	return j
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

// isFor reports whether newJob would return a job with the same images and secrets for pod and t.
func (j *job) isFor(pod *corev1.Pod, t api.Target) bool {
	same := newJob(pod, t, false)
	return j.Revision == t.Revision && slices.Equal(j.Secrets, same.Secrets) &&
		slices.EqualFunc(j.Images, same.Images, func(a, b jobImage) bool { return a.Image == b.Image })
}

// isNewer reports whether pod may be at least as new as the state that j was created from.
func (j *job) isNewer(pod *corev1.Pod) bool {
	before, err := strconv.ParseUint(j.Version, 10, 64)
	now, errNow := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	return err != nil || errNow != nil || now >= before
}

// name returns the name of the pod.
func (j *job) name() types.NamespacedName {
	return types.NamespacedName{Namespace: j.Namespace, Name: j.Pod}
}

// key is the name of the job's file. The next pod of a StatefulSet has the same name and another UID.
func (j *job) key() types.NamespacedName {
	return types.NamespacedName{Namespace: j.Namespace, Name: string(j.UID)}
}

// imageName returns the name in containerd of an image of a pod. It does not change an invalid
// name, which the engine will report.
func imageName(image string) string {
	name, err := engineapi.Normalize(image)
	if err != nil {
		return image
	}
	return name
}
