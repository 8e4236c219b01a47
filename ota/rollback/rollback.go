// Package rollback has the wishes of a node's owner for earlier revisions of its pods.
//
// A wish is a file before its request is answered. It is reported to the cloud as an annotation of
// the pod for as long as it stands, which is longer than the controller takes to carry it out: the pod
// runs the earlier revision until the wish is withdrawn, the pod is gone, or a newer revision than the
// one it was made at is the target. The controller answers with a condition. If it refuses, the wish
// is over.
package rollback

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/history"
	"github.com/edgehub-io/edgehub/ota/podfiles"
	"github.com/edgehub-io/edgehub/ota/podreport"
)

const (
	// visible is how long a wish is shown that is over, by the node's clock.
	visible = 24 * time.Hour
	// goneAfter is how long a pod may be missing while the cloud can be reached that this process has not
	// seen. A hub that was killed may have lost a pod that was created just before, and knows it again once
	// its watch has caught up.
	goneAfter = 5 * time.Minute
	// missingStep is how often missing pods are looked for.
	missingStep = time.Minute
)

// reasonRequested is the reason of api.RolledBackCondition until the controller answers.
const reasonRequested = "RequestedByOwner"

// Images knows which images are on the node, as imagepull.Puller does.
type Images interface {
	// Retained reports whether an image is on the node and stays there.
	Retained(image string) bool
	// Missing reports whether an image is certainly not on the node.
	Missing(image string) bool
}

// Options are the options of Open. All but Images are required.
type Options struct {
	Dir string // of the files; it is created if it does not exist
	// History is what there is to go back to.
	History *history.History
	// Images is nil if nothing is known of them.
	Images Images
	// Pods returns all pods of the node as the cloud has them, read-only, once Update has been called.
	Pods func() []*corev1.Pod
	// Online reports whether the cloud can be reached.
	Online func() bool
	// Changed is called when Report may return something else. It must not block.
	Changed func()
	Logger  *slog.Logger
}

// Rollbacks is safe for concurrent use.
type Rollbacks struct {
	options Options
	files   *podfiles.Folder[wish]

	disk sync.Mutex // held while wishes are changed, so that files and memory agree
	// missing has since when the pods of wishes have been missing while the cloud can be reached; zero:
	// this process has seen the pod. It is used with disk held.
	missing map[types.UID]time.Time

	mu     sync.Mutex
	wishes map[types.NamespacedName]wish
}

// wish is the last wish for a pod.
type wish struct {
	api.Rollback
	UID types.UID `json:"uid"`
	// Version is the resourceVersion of the pod when the wish was made. The watch may show an older
	// state, which says nothing about the wish.
	Version string `json:"version,omitempty"`
	// State is InProgress or final. A wish that is Done stands until Over.
	State   api.UpgradeState `json:"state"`
	Message string           `json:"message,omitempty"`
	Ended   time.Time        `json:"ended,omitzero"` // when State became final
	Over    bool             `json:"over,omitempty"` // it is not reported any more
}

// Open reads the files. It starts nothing.
func Open(o Options) (*Rollbacks, error) {
	files, wishes, err := podfiles.Open[wish](o.Dir, o.Logger)
	if err != nil {
		return nil, err
	}
	return &Rollbacks{options: o, files: files, wishes: wishes, missing: map[types.UID]time.Time{}}, nil
}

// Run ends the wishes for pods that stay missing, until ctx ends.
func (r *Rollbacks) Run(ctx context.Context) {
	tick := time.NewTicker(missingStep)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if r.isAnyMissing() {
				r.Update(r.options.Pods())
			}
		}
	}
}

func (r *Rollbacks) isAnyMissing() bool {
	r.disk.Lock()
	defer r.disk.Unlock()
	for _, since := range r.missing {
		if !since.IsZero() {
			return true
		}
	}
	return false
}

// History returns the revisions that a pod's app has run on this node, the current one first.
func (r *Rollbacks) History(pod *corev1.Pod) api.History {
	return r.options.History.Of(pod, func(image string) bool { return r.options.Images != nil && r.options.Images.Retained(image) })
}

// Previous returns the target to which a pod would be rolled back: revision, or the one before the
// current if it is empty. It returns false if the node has not run it.
func (r *Rollbacks) Previous(pod *corev1.Pod, revision string) (api.Target, bool) {
	return r.options.History.Previous(pod, revision)
}

// Missing returns the images of a target that are certainly not on the node, each once.
func (r *Rollbacks) Missing(t api.Target) []string {
	if r.options.Images == nil {
		return nil
	}
	return slices.DeleteFunc(history.ImagesOf(t), func(image string) bool { return !r.options.Images.Missing(image) })
}

// Request asks the cloud for an earlier revision of a pod. When it returns nil, the wish survives a
// crash. A wish that stands already for the same revision is not a new one.
func (r *Rollbacks) Request(pod *corev1.Pod, target api.Target) error {
	r.disk.Lock()
	defer r.disk.Unlock()
	name := nameOf(pod)
	have := r.get(name)
	w := wish{UID: pod.UID, Version: pod.ResourceVersion, State: api.InProgress, Rollback: api.Rollback{
		Revision: target.Revision, From: have.newest(pod, targetOf(r.asInCloud(pod))), Requested: metav1.NewTime(time.Now().UTC().Truncate(time.Second)),
	}}
	switch {
	case w.From == "":
		return errors.New("it is not known which revision is the newest: the pod names none")
	case !have.Over && have.UID == w.UID && have.Revision == w.Revision && have.From == w.From:
		return nil
	}
	r.options.Logger.Info("the owner wants an earlier revision", "pod", name.String(), "uid", string(pod.UID), "revision", w.Revision, "from", w.From)
	return r.put(name, w)
}

// Withdraw ends the wish for a pod, if there is one.
func (r *Rollbacks) Withdraw(pod types.NamespacedName) error {
	r.disk.Lock()
	defer r.disk.Unlock()
	w := r.get(pod)
	if w.UID == "" || w.Over {
		return nil
	}
	return r.put(pod, w.over(api.Withdrawn, "it was withdrawn"))
}

// Report returns what the cloud is to know of the wish for a pod. It is a podreport.Source.
//
// A new wish comes with a condition that is Unknown, so that the controller's answer to an earlier one
// is not mistaken for the answer to this one.
func (r *Rollbacks) Report(pod *corev1.Pod) podreport.Report {
	w, value := r.get(nameOf(pod)), ""
	if w.UID == pod.UID && !w.Over {
		value = w.Encode()
	}
	report := podreport.Report{Annotations: map[string]string{api.RollbackAnnotation: value}}
	if value != "" && pod.Annotations[api.RollbackAnnotation] != value {
		report.Conditions = []corev1.PodCondition{{
			Type: api.RolledBackCondition, Status: corev1.ConditionUnknown, Reason: reasonRequested, Message: api.Message(w.Revision),
		}}
	}
	return report
}

// Update compares the wishes with the pods of the node. It must be called with all of them as the cloud has them,
// read-only, when they are known and after changes.
func (r *Rollbacks) Update(pods []*corev1.Pod) {
	r.disk.Lock()
	defer r.disk.Unlock()
	r.mu.Lock()
	names := make([]types.NamespacedName, 0, len(r.wishes))
	for name := range r.wishes {
		names = append(names, name)
	}
	r.mu.Unlock()
	stand := map[types.UID]bool{}
	for _, name := range names {
		w := r.get(name)
		stand[w.UID] = !w.Over
		if since := time.Since(w.Ended); w.Over && (since > visible || since < -visible) {
			r.forget(name)
			continue
		}
		i := slices.IndexFunc(pods, func(pod *corev1.Pod) bool { return pod.UID == w.UID })
		next := w
		if i >= 0 {
			r.missing[w.UID] = time.Time{}
			next = w.with(pods[i])
		} else if r.isGone(w.UID) {
			next = w.over(api.Dropped, "the pod is gone")
		}
		if next == w {
			continue
		}
		r.options.Logger.Info("rollback of a pod", "pod", name.String(), "revision", next.Revision, "state", next.State, "over", next.Over, "message", next.Message)
		if err := r.put(name, next); err != nil {
			r.options.Logger.Error("the state of a rollback cannot be written; it is found out again", "pod", name.String(), "err", err)
		}
	}
	maps.DeleteFunc(r.missing, func(pod types.UID, _ time.Time) bool { return !stand[pod] })
}

// isGone reports whether a pod is gone that the node's pods do not have. While the cloud cannot be reached,
// nobody could have removed it: the cache has lost it. r.disk is held.
func (r *Rollbacks) isGone(pod types.UID) bool {
	since, ok := r.missing[pod]
	seen := ok && since.IsZero()
	switch {
	case !r.options.Online():
		if !seen {
			delete(r.missing, pod)
		}
		return false
	case !ok:
		r.missing[pod] = time.Now()
		return false
	}
	return seen || time.Since(since) >= goneAfter
}

// with returns the wish after its pod has been seen.
func (w wish) with(pod *corev1.Pod) wish {
	if w.Over || isOlder(pod, w.Version) {
		return w
	}
	switch target := targetOf(pod); target {
	case w.Revision:
		return w.over(api.Done, "")
	case w.From, "":
	default:
		return w.over(api.Dropped, "a newer revision has come: "+target)
	}
	c := api.Condition(pod, api.RolledBackCondition)
	if c == nil || pod.Annotations[api.RollbackAnnotation] != w.Encode() {
		return w
	}
	switch c.Status {
	case corev1.ConditionTrue:
		return w.ended(api.Done, "")
	case corev1.ConditionFalse:
		return w.over(api.Dropped, c.Message)
	}
	return w
}

// ended returns the wish with a final state, unless it has one.
func (w wish) ended(state api.UpgradeState, message string) wish {
	if !w.State.Final() {
		w.State, w.Message, w.Ended = state, message, time.Now().UTC().Truncate(time.Second)
	}
	return w
}

// over returns the wish as one that does not stand any more.
func (w wish) over(state api.UpgradeState, message string) wish {
	w = w.ended(state, message)
	if !w.Over {
		w.Over, w.Ended = true, time.Now().UTC().Truncate(time.Second) // it is shown for some time from now
	}
	return w
}

// State returns the last rollback of a pod.
func (r *Rollbacks) State(pod types.NamespacedName) (api.Upgrade, bool) {
	w := r.get(pod)
	return w.state(pod, r.options.Online()), w.UID != ""
}

// States returns the last rollbacks of all pods, in no order.
func (r *Rollbacks) States() []api.Upgrade {
	online := r.options.Online()
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []api.Upgrade
	for name, w := range r.wishes {
		list = append(list, w.state(name, online))
	}
	return list
}

func (w wish) state(name types.NamespacedName, online bool) api.Upgrade {
	u := api.Upgrade{
		Namespace: name.Namespace, Pod: name.Name, UID: string(w.UID), Action: api.RollbackAction,
		Revision: w.Revision, State: w.State, Requested: w.Requested.Time, Message: w.Message,
	}
	switch {
	case w.State.Final():
		u.Ended = &w.Ended
	case !online:
		u.State, u.Message = api.WaitingForCloud, "it starts when the cloud can be reached"
	default:
		u.Message = "it waits for edgehub-controller"
	}
	return u
}

func (r *Rollbacks) get(name types.NamespacedName) wish {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wishes[name]
}

// put writes a wish, and only then changes it in memory. r.disk is held.
func (r *Rollbacks) put(name types.NamespacedName, w wish) error {
	if err := r.files.Put(name, w); err != nil {
		return err
	}
	r.mu.Lock()
	r.wishes[name] = w
	r.mu.Unlock()
	r.options.Changed()
	return nil
}

// forget removes a wish that is over. r.disk is held.
func (r *Rollbacks) forget(name types.NamespacedName) {
	if err := r.files.Delete(name); err != nil {
		r.options.Logger.Warn("a rollback that is over cannot be forgotten; it is tried again", "pod", name.String(), "err", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.wishes, name)
}

// targetOf returns the revision that is the newest for a pod, as the controller has marked it, or "".
func targetOf(pod *corev1.Pod) string {
	if t, ok, err := api.TargetOf(pod); ok && err == nil {
		return t.Revision
	}
	if need := api.Condition(pod, api.NeedCondition); need != nil {
		return api.RevisionOf(need)
	}
	return ""
}

// asInCloud returns a pod without what a bundle offers it: the cloud is not to read that in the wish.
func (r *Rollbacks) asInCloud(pod *corev1.Pod) *corev1.Pod {
	pods := r.options.Pods()
	i := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.UID == pod.UID && p.ResourceVersion == pod.ResourceVersion })
	if i < 0 {
		return pod
	}
	return pods[i]
}

// newest returns the newest revision that a pod with this target names. In a rollout, the controller marks only pods
// that it is about to replace: then it is the pod's own, or that before the rollback that stands.
func (w wish) newest(pod *corev1.Pod, target string) string {
	own := pod.Labels[appsv1.ControllerRevisionHashLabelKey]
	if target != "" {
		return target
	}
	if w.UID == pod.UID && !w.Over && w.Revision == own {
		return w.From
	}
	return own
}

// isOlder reports whether pod is certainly older than the state with this resourceVersion.
func isOlder(pod *corev1.Pod, version string) bool {
	before, err := strconv.ParseUint(version, 10, 64)
	now, errNow := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	return err == nil && errNow == nil && now < before
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}
