// Package history remembers which revisions of each app a node has run, so that its owner can go
// back to an earlier one.
//
// An app is a DaemonSet or StatefulSet with pods on this node. A revision is recorded once one of
// its pods is Ready, with the images that the pod's spec names, and has a place until the app has run
// more revisions than the admin's policy allows. Each app is a file. An app that has left the node is
// forgotten after the hub has run for a week without it: clocks of nodes jump, so no date decides.
package history

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/podfiles"
)

const (
	// forgetAfter is how long the hub runs without a pod of an app until it forgets the app.
	forgetAfter = 7 * 24 * time.Hour
	// absenceStep is how often that time is written. A hub that stops loses less than this.
	absenceStep = time.Hour
	// maxRevision bounds what is recorded of a revision, in bytes as JSON. A container takes about 100.
	maxRevision = 16 << 10
	// maxApps is more than a node has: kubelet runs 110 pods by default. It bounds what somebody can do
	// who may create pods, since each may name another owner.
	maxApps = 250
)

// History is safe for concurrent use.
type History struct {
	log     *slog.Logger
	files   *podfiles.Folder[app]
	changed chan struct{} // Images may return something else; one message stands for any number of changes

	disk sync.Mutex // held while apps are changed, so that files and memory agree
	mu   sync.Mutex
	apps map[types.NamespacedName]app // values are not changed, but replaced
	// unsaved are apps whose files could not be written. They are written at the next change of a pod.
	unsaved map[types.NamespacedName]bool
	known   bool // the node's pods are
}

// app is what is known of one owner. Its file has the name of the owner's UID.
type app struct {
	// History is how many revisions stay in Revisions besides those that pods run, and Retain is
	// whether their images stay on the node.
	History   int        `json:"history"`
	Retain    bool       `json:"retain,omitempty"`
	Revisions []revision `json:"revisions"` // the last that a pod has begun to run comes first
	// Pods are those of the node.
	Pods map[types.UID]seen `json:"pods,omitempty"`
	// Absent is how long the hub has run without a pod of the app.
	Absent time.Duration `json:"absent,omitempty"`
}

// seen is what is known of a pod.
type seen struct {
	Revision string `json:"revision"` // that it was last Ready with, or ""
	// Marked is true once the controller has seen the pod: no policy is the default policy then.
	Marked bool `json:"marked,omitempty"`
}

type revision struct {
	api.Target           // as of the pod's spec
	Since      time.Time `json:"since"`
	// StartSeconds is how long its containers took from their start to Ready when the first pod of it
	// began; 0 is unknown.
	StartSeconds int `json:"startSeconds,omitempty"`
}

// Open reads the files in a folder, which is created if it does not exist. It starts nothing.
func Open(dir string, log *slog.Logger) (*History, error) {
	files, apps, err := podfiles.Open[app](dir, log)
	if err != nil {
		return nil, err
	}
	return &History{log: log, files: files, changed: make(chan struct{}, 1), apps: apps, unsaved: map[types.NamespacedName]bool{}}, nil
}

// Run forgets apps that have left the node, until ctx ends. It calls changed when Images may return something else.
func (h *History) Run(ctx context.Context, changed func()) {
	tick := time.NewTicker(absenceStep)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			h.passAbsence()
		case <-h.changed:
			changed()
		}
	}
}

// passAbsence adds absenceStep to the time of each app that has no pod on this node.
func (h *History) passAbsence() {
	h.disk.Lock()
	defer h.disk.Unlock()
	if !h.known {
		return
	}
	for key, a := range h.all() {
		if len(a.Pods) > 0 {
			continue
		}
		if a.Absent += absenceStep; a.Absent >= forgetAfter {
			h.forget(key)
			continue
		}
		h.put(key, a)
	}
}

// Images returns the images to retain, as the pods' specs name them, sorted.
func (h *History) Images() []string {
	images := map[string]bool{}
	for _, a := range h.all() {
		for _, r := range a.Revisions {
			for _, image := range ImagesOf(r.Target) {
				if a.Retain {
					images[image] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(images))
}

// Of returns the revisions that a pod's app has run on this node, the pod's own first. retained reports whether an
// image is on the node and stays there.
func (h *History) Of(pod *corev1.Pod, retained func(image string) bool) api.History {
	current := current(pod)
	all := h.revisions(pod)
	own := slices.IndexFunc(all, func(r revision) bool { return r.Revision == current.Revision })
	if own >= 0 {
		current = all[own]
		all = slices.Delete(all, own, own+1)
	}
	list := api.History{Items: []api.Revision{}}
	for _, r := range slices.Insert(all, 0, current) {
		images, blocked := ImagesOf(r.Target), ""
		if r.Revision != current.Revision {
			blocked = api.NoWayBack(pod, r.Revision)
		}
		list.Items = append(list.Items, api.Revision{
			Revision: r.Revision, Since: r.Since, Current: r.Revision == current.Revision, Images: images,
			Retained: !slices.ContainsFunc(images, func(i string) bool { return !retained(i) }), Blocked: blocked,
		})
	}
	return list
}

// Previous returns the target to which a pod would be rolled back: the one with this hash, or the one
// before the current if it is empty. It returns false if there is none but the pod's own.
func (h *History) Previous(pod *corev1.Pod, hash string) (api.Target, bool) {
	current := current(pod)
	for _, r := range h.revisions(pod) {
		if r.Revision == current.Revision || hash != "" && hash != r.Revision {
			continue
		}
		return r.Target, true
	}
	return api.Target{}, false
}

// revisions returns a copy of what is known of a pod's app.
func (h *History) revisions(pod *corev1.Pod) []revision {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.apps[appOf(pod)].Revisions)
}

// current returns the revision that a pod runs, or should run. It has no hash if the pod names none.
func current(pod *corev1.Pod) revision {
	since := pod.CreationTimestamp.Time
	if pod.Status.StartTime != nil {
		since = pod.Status.StartTime.Time
	}
	return revision{Target: api.NewTarget(pod.Labels[appsv1.ControllerRevisionHashLabelKey], &pod.Spec), Since: since.UTC(), StartSeconds: startSeconds(pod)}
}

// maxStart is longer than apps take to start: a pod that became Ready later was Ready before, and the hub
// did not see that.
const maxStart = 10 * time.Minute

// startSeconds returns how long the containers of a pod that is Ready for the first time took to become so,
// rounded up, or 0 if that cannot be known.
func startSeconds(pod *corev1.Pod) int {
	ready := api.Condition(pod, corev1.PodReady)
	var first time.Time
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Status.ContainerStatuses[i]
		if c.RestartCount > 0 || c.State.Running == nil {
			return 0
		}
		if at := c.State.Running.StartedAt.Time; first.IsZero() || at.Before(first) {
			first = at
		}
	}
	if ready == nil || first.IsZero() || ready.LastTransitionTime.Time.Before(first) {
		return 0
	}
	took := ready.LastTransitionTime.Sub(first)
	if took > maxStart {
		return 0
	}
	return max(1, int(math.Ceil(took.Seconds())))
}

// StartSeconds returns how long the app of a pod took to become Ready when the revision that the pod runs
// was first started here; 0 is unknown.
func (h *History) StartSeconds(pod *corev1.Pod) int {
	runs := current(pod).Revision
	for _, r := range h.revisions(pod) {
		if r.Revision == runs {
			return r.StartSeconds
		}
	}
	return 0
}

// ImagesOf returns the images of all containers, each once, in the order of the pod's containers.
func ImagesOf(t api.Target) []string {
	var images []string
	for _, i := range slices.Concat(t.InitContainers, t.Containers) {
		if !slices.Contains(images, i.Image) {
			images = append(images, i.Image)
		}
	}
	return images
}

// appOf returns the key of a pod's app, which is zero for other pods. Whoever may create pods can write
// anything into an owner reference, and the key becomes the name of a file.
func appOf(pod *corev1.Pod) types.NamespacedName {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || !strings.HasPrefix(owner.APIVersion, appsv1.GroupName+"/") || owner.Kind != "DaemonSet" && owner.Kind != "StatefulSet" ||
		len(validation.IsDNS1123Label(string(owner.UID))) > 0 {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: pod.Namespace, Name: string(owner.UID)}
}

// all returns a copy of the apps.
func (h *History) all() map[types.NamespacedName]app {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.apps)
}

// put replaces an app. h.disk is held.
func (h *History) put(key types.NamespacedName, a app) {
	h.mu.Lock()
	h.apps[key] = a
	h.mu.Unlock()
	err := h.files.Put(key, a)
	if err != nil && !h.unsaved[key] {
		h.log.Error("the history of an app cannot be written; it is tried again", "app", key.String(), "err", err)
	}
	h.unsaved[key] = err != nil
}

// forget removes an app. A file that cannot be removed is read again at the next start. h.disk is held.
func (h *History) forget(key types.NamespacedName) {
	h.mu.Lock()
	delete(h.apps, key)
	h.mu.Unlock()
	delete(h.unsaved, key)
	if err := h.files.Delete(key); err != nil {
		h.log.Error("the history of an app that has left cannot be forgotten", "app", key.String(), "err", err)
	}
	h.notify()
}

func (h *History) notify() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// makeRoom forgets the app that has been away the longest if there are maxApps. It returns false if
// all of them have pods. h.disk is held.
func (h *History) makeRoom() bool {
	apps := h.all()
	if len(apps) < maxApps {
		return true
	}
	maps.DeleteFunc(apps, func(_ types.NamespacedName, a app) bool { return len(a.Pods) > 0 })
	if len(apps) == 0 {
		return false
	}
	h.forget(slices.MaxFunc(slices.Collect(maps.Keys(apps)), func(a, b types.NamespacedName) int {
		return cmp.Compare(apps[a].Absent, apps[b].Absent)
	}))
	return true
}
