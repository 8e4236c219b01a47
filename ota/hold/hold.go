// Package hold keeps the holds of a node's pods: an owner or an app does not want a pod to be
// upgraded for some time. They survive a crash, end by themselves, and are reported to the cloud,
// whose controller respects them.
//
// A pod may be held for the MaxHold of its policy. That counts from its first hold, however often
// the hold is extended, removed and set again, until the pod has been without one for
// api.HoldPause, or was replaced. The controller counts for itself, by the same rule.
//
// While the hub runs, a hold lasts as long as it was meant to, whatever happens to the node's
// clock. Across a restart only that clock counts; if it has gone back to before the hold began,
// the hold begins again.
package hold

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/podfiles"
	"github.com/edgehub-io/edgehub/ota/podreport"
)

// Pods are the pods of the node.
type Pods interface {
	// Get returns a pod, or nil.
	Get(types.NamespacedName) *corev1.Pod
	// Synced reports whether the pods are known.
	Synced() bool
}

// Options are the options of New. All but Registerer are required.
type Options struct {
	// Dir is the folder for the holds. Nothing else may be in it.
	Dir        string
	Pods       Pods
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Holds implements ota.Holds. It is safe for concurrent use.
type Holds struct {
	Options
	files   *podfiles.Folder[record]
	changed chan struct{} // one message stands for any number of changes

	writing sync.Mutex // held while files and, after them, holds change
	mu      sync.Mutex
	holds   map[types.NamespacedName]hold // guarded by mu
}

var _ ota.Holds = (*Holds)(nil)

// record is the file of a hold, by the node's clock. It is kept for api.HoldPause after Until.
type record struct {
	UID    types.UID `json:"uid"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"` // when it was removed, if it was
	Reason string    `json:"reason,omitempty"`
}

// hold is a record with times that changes of the clock do not move.
type hold struct {
	record
	begun, ends time.Time
	set         time.Time // when it was set last; zero before this start
}

// unknownFor is how long a pod that is not known yet keeps its hold: the list from which its hold
// was set may be newer than Pods.
const unknownFor = time.Minute

// New reads the holds in a folder. It fails if one cannot be read: its pod would be upgraded though its owner holds it.
func New(o Options) (*Holds, error) {
	files, records, err := podfiles.Open[record](o.Dir, o.Logger)
	if err == nil && files.Unread {
		err = fmt.Errorf("a file in %s cannot be read; if it never can, remove it", o.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open holds: %w", err)
	}
	h := &Holds{Options: o, files: files, changed: make(chan struct{}, 1), holds: map[types.NamespacedName]hold{}}
	for name, r := range records {
		h.holds[name] = r.at(time.Now())
	}
	if o.Registerer == nil {
		return h, nil
	}
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edgehub_ota_holds", Help: "Pods that are on hold: they are not upgraded until their hold ends.",
	}, h.count)
	if err := o.Registerer.Register(held); err != nil {
		return nil, fmt.Errorf("register metrics of holds: %w", err)
	}
	return h, nil
}

// at returns the hold of a record that was read at a time.
func (r record) at(now time.Time) hold {
	length := r.Until.Sub(r.Since)
	ends := now.Add(min(r.Until.Sub(now), length))
	return hold{record: r, begun: ends.Add(-length), ends: ends}
}

// Set implements ota.Holds. It returns ota.ErrHeldTooLong once the pod has been held for the
// maximum, and holds it for less than length if the maximum is reached before.
func (h *Holds) Set(pod *corev1.Pod, policy api.Policy, length time.Duration, reason string) (api.Hold, error) {
	h.writing.Lock()
	defer h.writing.Unlock()
	name, now := nameOf(pod), time.Now()
	next := h.get(name)
	if next.UID != pod.UID || now.Sub(next.ends) >= api.HoldPause {
		next = hold{record: record{UID: pod.UID}, begun: now}
	}
	latest := next.begun.Add(policy.MaxHold)
	if !now.Before(latest) {
		return api.Hold{}, fmt.Errorf("%w, %v, since %s", ota.ErrHeldTooLong, policy.MaxHold, next.Since.UTC().Format(time.RFC3339))
	}
	next.ends, next.set, next.Reason = now.Add(length), now, reason
	if next.ends.After(latest) {
		next.ends = latest
	}
	// Since stays as it is, unless the clock was wrong when it was written.
	if since := now.Round(0).Add(next.begun.Sub(now)); since.Sub(next.Since).Abs() > time.Minute {
		next.Since = since.Truncate(time.Second)
	}
	next.Until = next.Since.Add(next.ends.Sub(next.begun).Round(time.Second))
	if err := h.files.Put(name, next.record); err != nil {
		return api.Hold{}, err
	}
	h.put(name, next)
	return h.describe(name, next), nil
}

// Remove implements ota.Holds.
func (h *Holds) Remove(pod types.NamespacedName) (bool, error) {
	h.writing.Lock()
	defer h.writing.Unlock()
	current := h.get(pod)
	if !h.holding(pod, current) {
		return false, nil
	}
	return true, h.shorten(pod, current, time.Now())
}

// shorten has a hold end at an earlier time.
func (h *Holds) shorten(name types.NamespacedName, current hold, at time.Time) error {
	current.ends = at
	current.Until = current.Since.Add(at.Sub(current.begun).Round(time.Second))
	if err := h.files.Put(name, current.record); err != nil {
		return err
	}
	h.put(name, current)
	return nil
}

// Of implements ota.Holds. Pods may know the pod later than the caller.
func (h *Holds) Of(pod *corev1.Pod) (api.Hold, bool) {
	name := nameOf(pod)
	current := h.get(name)
	return h.describe(name, current), current.counts(pod.UID)
}

// State implements ota.Holds.
func (h *Holds) State(pod types.NamespacedName) (api.Hold, bool) {
	current := h.get(pod)
	if !h.holding(pod, current) {
		return api.Hold{}, false
	}
	return h.describe(pod, current), true
}

// Report is a podreport.Source.
func (h *Holds) Report(pod *corev1.Pod) podreport.Report {
	value := ""
	if current := h.get(nameOf(pod)); current.counts(pod.UID) {
		value = current.encode()
	}
	return podreport.Report{Annotations: map[string]string{api.HoldAnnotation: value}}
}

// PodsChanged is called when Pods may have changed. It does not block.
func (h *Holds) PodsChanged() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// Run ends holds and forgets those that no longer matter, until ctx ends. It calls changed after a hold was set,
// changed, or has ended; changed must not block.
func (h *Holds) Run(ctx context.Context, changed func()) {
	for {
		wait := h.sweep()
		changed()
		select {
		case <-ctx.Done():
			return
		case <-h.changed:
		case <-time.After(wait):
		}
	}
}

// sweep forgets the holds of pods that are gone, and those that have ended long ago, and ends those
// that a pod's policy no longer permits. It returns when the next hold may end, or be forgotten.
func (h *Holds) sweep() time.Duration {
	h.writing.Lock()
	defer h.writing.Unlock()
	now, wait := time.Now(), api.HoldPause
	for name, current := range h.all() {
		next, err := h.check(name, current, now)
		if err != nil {
			h.Logger.Error("the file of a hold was not changed, it is tried again", "pod", name.String(), "err", err)
			next = now.Add(unknownFor)
		}
		wait = min(wait, max(0, next.Sub(now)))
	}
	return wait
}

// check returns when to check a hold again.
func (h *Holds) check(name types.NamespacedName, current hold, now time.Time) (time.Time, error) {
	pod := h.Pods.Get(name)
	switch gone := pod == nil || pod.UID != current.UID; {
	case now.Sub(current.ends) >= api.HoldPause:
		return now.Add(api.HoldPause), h.forget(name)
	case gone && h.Pods.Synced() && now.Sub(current.set) >= unknownFor:
		return now.Add(api.HoldPause), h.forget(name)
	case gone:
		return now.Add(unknownFor), nil
	case !now.Before(current.ends):
		return current.ends.Add(api.HoldPause), nil
	}
	policy, err := api.PolicyOf(pod)
	if err != nil {
		policy = api.Policy{} // it permits nothing
	}
	latest := current.begun.Add(policy.MaxHold)
	if !latest.Before(current.ends) {
		return current.ends, nil
	}
	if latest.Before(now) {
		latest = now
	}
	h.Logger.Warn("a hold is shortened: the pod's policy has changed", "pod", name.String(), "uid", string(current.UID), "until", latest, "maximum", policy.MaxHold)
	return latest, h.shorten(name, current, latest)
}

func (h *Holds) forget(name types.NamespacedName) error {
	if err := h.files.Delete(name); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.holds, name)
	return nil
}

// get returns the zero value if there is none.
func (h *Holds) get(name types.NamespacedName) hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holds[name]
}

func (h *Holds) put(name types.NamespacedName, v hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds[name] = v
	h.PodsChanged() // Run has another time to wait for
}

// all returns a copy.
func (h *Holds) all() map[types.NamespacedName]hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.holds)
}

// counts reports whether a hold is that of a pod, and not over.
func (v hold) counts(pod types.UID) bool { return v.UID == pod && time.Now().Before(v.ends) }

// holding reports whether a hold counts now, and is that of the pod which has its name now.
func (h *Holds) holding(name types.NamespacedName, v hold) bool {
	pod := h.Pods.Get(name)
	return v.counts(v.UID) && (pod == nil || pod.UID == v.UID)
}

func (h *Holds) count() float64 {
	n := 0
	for name, v := range h.all() {
		if h.holding(name, v) {
			n++
		}
	}
	return float64(n)
}

func (r record) encode() string {
	return api.PodHold{Since: metav1.NewTime(r.Since.UTC()), Until: metav1.NewTime(r.Until.UTC()), Reason: r.Reason}.Encode()
}

func (h *Holds) describe(name types.NamespacedName, v hold) api.Hold {
	pod := h.Pods.Get(name)
	return api.Hold{
		Namespace: name.Namespace, Pod: name.Name, Since: v.Since.UTC(), Until: v.Until.UTC(), Reason: v.Reason,
		Reported: pod != nil && pod.UID == v.UID && pod.Annotations[api.HoldAnnotation] == v.encode(),
	}
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}
