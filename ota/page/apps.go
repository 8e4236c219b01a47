package page

import (
	"cmp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/api/podstatus"
)

// AppSources are where the list of apps is read. All but Size are required, and must be safe for concurrent use. None
// of them asks the cloud.
type AppSources struct {
	// Pods returns the pods of the node, read-only, as they run.
	Pods func() []*corev1.Pod
	// Pull, Upgrade and Hold return what there is of a pod.
	Pull    func(types.NamespacedName) (api.ImagePull, bool)
	Upgrade func(types.NamespacedName) (api.Upgrade, bool)
	Hold    func(*corev1.Pod) (api.Hold, bool)
	// Size returns how many bytes a pull of a target would fetch, 0 while that is unknown. Nil: it always is.
	Size func(*corev1.Pod, api.Target) int64
	// Refused returns why a pod cannot be upgraded now, in one line, or nil.
	Refused func(*corev1.Pod) error
	// InPlace reports whether an upgrade of a pod takes effect at once while the cloud is away.
	InPlace func(*corev1.Pod) bool
	// Seconds returns how long the app of a pod took to start, 0 if that is unknown.
	Seconds func(*corev1.Pod) int
	// Previous returns what a rollback of a pod leads to, and false if there is nothing.
	Previous func(*corev1.Pod) (api.Target, bool)
}

// List returns the pods of the node as its owner sees them: what runs, whether there is a newer version, how far it is,
// and what the owner may do about it. It is safe for concurrent use.
func (o *AppSources) List() api.AppList {
	list := api.AppList{Items: []api.App{}}
	for _, pod := range o.Pods() {
		if phase := pod.Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			list.Items = append(list.Items, o.app(pod))
		}
	}
	slices.SortFunc(list.Items, func(a, b api.App) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod))
	})
	return list
}

// rank orders apps that can be upgraded before the others.
func rank(a *api.App) int {
	if a.Update != nil {
		return 0
	}
	return 1
}

func (o *AppSources) app(pod *corev1.Pod) api.App {
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	a := api.App{
		Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID), Deleting: pod.DeletionTimestamp != nil,
		Ready: podstatus.IsReady(pod), Restarts: podstatus.Restarts(pod),
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		a.Kind, a.Workload = owner.Kind, owner.Name
	}
	// JSON has no other years: one pod's would keep all from being shown.
	if started := pod.Status.StartTime; started != nil && started.Year() > 0 && started.Year() < 9999 {
		a.Started = &started.Time
	}
	if !a.Ready && !a.Deleting {
		a.Trouble = trouble(pod)
	}
	a.Images = imagesOf(pod)
	if u, ok := o.Upgrade(name); ok && u.UID == a.UID {
		a.Upgrade = &u
	}
	if h, ok := o.Hold(pod); ok {
		a.Hold = &h
	}
	need := api.Condition(pod, api.NeedCondition)
	if need == nil {
		return a // the controller does not leave it to the node's owner
	}
	if policy, err := api.PolicyOf(pod); err == nil {
		a.MayHold = policy.MaxHold > 0
		target, ok := o.Previous(pod)
		switch {
		case !policy.Rollback:
		case a.Upgrade != nil && a.Upgrade.InPlace != nil && a.Upgrade.InPlace.State == api.InProbation:
			a.MayRollback, a.Previous = true, a.Images
		case ok && api.NoWayBack(pod, target.Revision) == "":
			a.MayRollback, a.Previous = true, targetImages(target)
		case ok:
			a.MayRollback = true
		}
	}
	// The cloud may not know yet what runs.
	if need.Status == corev1.ConditionTrue && api.RevisionOf(need) != pod.Labels[appsv1.ControllerRevisionHashLabelKey] {
		a.Update = o.update(pod, name, api.RevisionOf(need), a.Images)
	}
	return a
}

func trouble(pod *corev1.Pod) string {
	if f := podstatus.FailureOf(pod); f != nil {
		return f.String()
	}
	return podstatus.Unready(pod)
}

// imagesOf returns the images of a pod's containers, each once.
func imagesOf(pod *corev1.Pod) []string {
	images := []string{}
	for _, c := range pod.Spec.Containers {
		images = appendOnce(images, c.Image)
	}
	return images
}

func targetImages(t api.Target) []string {
	images := []string{}
	for _, c := range t.Containers {
		images = appendOnce(images, c.Image)
	}
	return images
}

func appendOnce(all []string, one string) []string {
	if slices.Contains(all, one) {
		return all
	}
	return append(all, one)
}

func (o *AppSources) update(pod *corev1.Pod, name types.NamespacedName, revision string, running []string) *api.AppUpdate {
	u := &api.AppUpdate{Revision: revision, Images: []string{}, Seconds: o.Seconds(pod), InPlace: o.InPlace(pod)}
	target, ok, err := api.TargetOf(pod)
	known := ok && err == nil && target.Revision == revision
	if known {
		for _, image := range targetImages(target) {
			if !slices.Contains(running, image) {
				u.Images = append(u.Images, image)
			}
		}
	}
	if p, ok := o.Pull(name); ok && p.UID == string(pod.UID) && p.Revision == revision {
		u.Pull, u.Here, u.Bytes = &p, p.State == api.Ready, missingBytes(&p)
	} else {
		image := api.Condition(pod, api.ImageCondition)
		u.Here = image != nil && image.Status == corev1.ConditionTrue && api.RevisionOf(image) == revision
		if known && !u.Here && o.Size != nil {
			u.Bytes = o.Size(pod, target)
		}
	}
	if err := o.Refused(pod); err != nil {
		u.Blocked = err.Error()
	}
	return u
}

// missingBytes returns how much is to be downloaded, or 0 while that is unknown.
func missingBytes(p *api.ImagePull) (missing int64) {
	for _, i := range p.Images {
		if i.BytesTotal == 0 {
			return 0
		}
		missing += i.BytesTotal - i.BytesDone
	}
	return missing
}
