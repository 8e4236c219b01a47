package api

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations by which an admin decides what node owners may do with the pods of a DaemonSet or
// StatefulSet. The controller reads them and writes PolicyAnnotation on pods.
const (
	// MaxHoldAnnotation is how long a hold may delay an upgrade, as a Go duration such as 36h;
	// DefaultMaxHold if it is not set, and 0s forbids holds.
	MaxHoldAnnotation = "apps.openyurt.io/max-hold"
	// OwnerRollbackAnnotation is whether owners may roll back: Allowed, the default with the
	// strategy OTA, or Denied, the default with AdvancedRollingUpdate.
	OwnerRollbackAnnotation = "apps.openyurt.io/owner-rollback"
	// RollbackHistoryAnnotation is for how many previous revisions a node retains the images, from
	// 0 to MaxRollbackHistory; 1 if it is not set.
	RollbackHistoryAnnotation = "apps.openyurt.io/rollback-history"
)

// Values of OwnerRollbackAnnotation.
const (
	RollbackAllowed = "Allowed"
	RollbackDenied  = "Denied"
)

const (
	// DefaultMaxHold is a day, so that a node that is used by day is upgraded at night.
	DefaultMaxHold = 24 * time.Hour
	// maxMaxHold is a year: without a bound, a forged policy could hold a pod for ever.
	maxMaxHold = 365 * 24 * time.Hour
	// HoldPause is how long a pod must have been without a hold before a new one has the whole
	// MaxHold again: an app that holds its pod for each trip may do so every day, and two holds in
	// quick succession are one.
	HoldPause = time.Hour
	// MaxRollbackHistory is the default of revisionHistoryLimit: Kubernetes keeps no more.
	MaxRollbackHistory = 10
)

// Annotations and conditions on pods.
const (
	// PolicyAnnotation is a Policy as JSON. The controller sets it where the policy differs from
	// DefaultPolicy.
	PolicyAnnotation = "apps.openyurt.io/upgrade-policy"
	// HoldAnnotation is a Hold as JSON. The hub sets it.
	HoldAnnotation = "apps.openyurt.io/upgrade-hold"
	// WaitingAnnotation is a Waiting as JSON: an upgrade of the pod waits on its node. The hub sets it.
	WaitingAnnotation = "apps.openyurt.io/upgrade-waiting"
	// RollbackAnnotation is a Rollback as JSON: the owner wants an earlier revision. The hub sets it,
	// and removes it when the owner upgrades.
	RollbackAnnotation = "apps.openyurt.io/rollback"

	// RolledBackCondition is True on a pod that runs an earlier revision because its owner wants it,
	// and False if that was refused, with the reason. The controller sets it.
	RolledBackCondition corev1.PodConditionType = "PodRolledBack"
)

// durationPattern is as much of Go's durations as people write. deploy/admission has the same.
var durationPattern = regexp.MustCompile(`^([0-9]{1,5}([.][0-9]{1,3})?[hms]){1,3}$`)

// Policy is what the owner of a node may do with a pod.
type Policy struct {
	MaxHold time.Duration `json:"maxHold"` // in nanoseconds; 0: no holds
	// Rollback permits an earlier revision; History is for how many the node retains images.
	Rollback bool `json:"rollback,omitempty"`
	History  int  `json:"history"`
	// InPlace permits upgrades in place while the cloud is away: OfflineUpgradeAnnotation. With a strategy other than OTA, the
	// controller offers none, but a pod that was upgraded so keeps what it runs.
	InPlace bool `json:"inPlace,omitempty"`
	// Newest is the number of the workload's newest revision, if InPlace: a node takes no older one from a bundle.
	Newest int64 `json:"newest,omitempty"`
}

// DefaultPolicy is that of a pod without PolicyAnnotation.
func DefaultPolicy() Policy { return Policy{MaxHold: DefaultMaxHold, History: 1} }

// ParsePolicy reads a workload's annotations. ota is whether its strategy is OTA.
func ParsePolicy(annotations map[string]string, ota bool) (Policy, error) {
	inPlace, err := ParseOfflineUpgrade(annotations)
	if err != nil {
		return Policy{}, err
	}
	p := DefaultPolicy()
	p.Rollback, p.InPlace = ota, inPlace
	invalid := func(key, want string) error {
		return fmt.Errorf("annotation %s is %.60q: write %s", key, annotations[key], want)
	}
	if value, ok := annotations[OwnerRollbackAnnotation]; ok {
		switch value = strings.TrimSpace(value); {
		case strings.EqualFold(value, RollbackAllowed):
			p.Rollback = true
		case strings.EqualFold(value, RollbackDenied):
			p.Rollback = false
		default:
			return Policy{}, invalid(OwnerRollbackAnnotation, RollbackAllowed+" or "+RollbackDenied+", or remove it")
		}
	}
	if value, ok := annotations[MaxHoldAnnotation]; ok {
		value = strings.TrimSpace(value)
		d, err := time.ParseDuration(value)
		if err != nil || !durationPattern.MatchString(value) || d > maxMaxHold {
			return Policy{}, invalid(MaxHoldAnnotation, "a duration such as 36h, at most 8760h, or 0s for no holds")
		}
		p.MaxHold = d
	}
	if value, ok := annotations[RollbackHistoryAnnotation]; ok {
		n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 8)
		if err != nil || n > MaxRollbackHistory {
			return Policy{}, invalid(RollbackHistoryAnnotation, fmt.Sprintf("a number from 0 to %d", MaxRollbackHistory))
		}
		p.History = int(n)
	}
	return p, nil
}

// Encode returns p as the value of PolicyAnnotation, and "" for DefaultPolicy.
func (p Policy) Encode() string {
	if p == DefaultPolicy() {
		return ""
	}
	return encode(p)
}

// podPolicy is the policy of a pod.
type podPolicy struct {
	Policy
	// Revisions are the earlier revisions that the cluster has, each with why the pod cannot go back to it, "" if it can.
	// nil: that is not known, as of an older controller.
	Revisions map[string]string `json:"revisions,omitzero"`
}

// MaxRevisions is how many earlier revisions PolicyAnnotation names. Where the cluster has more, it names none.
const MaxRevisions = 30

// EncodeWith returns p as the value of PolicyAnnotation of a pod, with the earlier revisions that the cluster has, each with
// why the pod cannot go back to it, "" if it can. nil leaves that open.
func (p Policy) EncodeWith(revisions map[string]string) string {
	if revisions == nil {
		return p.Encode()
	}
	return encode(podPolicy{p, revisions})
}

// NoWayBack returns why a pod cannot go back to an earlier revision, as its PolicyAnnotation says; "" if it can, or if that is
// not known.
func NoWayBack(pod *corev1.Pod, revision string) string {
	var p podPolicy
	if _, err := decode(pod, PolicyAnnotation, &p); err != nil || p.Revisions == nil {
		return ""
	}
	if problem, exists := p.Revisions[revision]; exists {
		return problem
	}
	if u, ok, err := OfflineUpgradeOf(pod); ok && err == nil && u.From == revision {
		return "" // to the cloud it is the pod's own revision, and only images differ
	}
	return "the cluster does not have that revision any more (revisionHistoryLimit): the admin can roll out that version again"
}

// PolicyOf reads a pod's PolicyAnnotation. A value that cannot be read is an error, and permits
// nothing.
func PolicyOf(pod *corev1.Pod) (Policy, error) {
	p := DefaultPolicy()
	if _, err := decode(pod, PolicyAnnotation, &p); err != nil {
		return Policy{}, err
	}
	if p.MaxHold < 0 || p.MaxHold > maxMaxHold || p.History < 0 || p.History > MaxRollbackHistory {
		return Policy{}, fmt.Errorf("annotation %s of pod %s/%s has a value that no policy has", PolicyAnnotation, pod.Namespace, pod.Name)
	}
	return p, nil
}

// PodHold is an owner's or app's "not now". It ends at Until, and no later than the policy's MaxHold
// after Since, which stays the same while a hold is extended, and until the pod has been without a
// hold for HoldPause.
type PodHold struct {
	Since metav1.Time `json:"since"`
	Until metav1.Time `json:"until"`
	// Reason is what the owner wrote, at most MaxHoldReason bytes of printable text.
	Reason string `json:"reason,omitempty"`
}

// MaxHoldReason bounds Hold.Reason, which others read in Events and tables.
const MaxHoldReason = 200

// Encode returns h as the value of HoldAnnotation.
func (h PodHold) Encode() string { return encode(h) }

// HoldOf reads a pod's HoldAnnotation, and returns false without one.
func HoldOf(pod *corev1.Pod) (PodHold, bool, error) {
	var h PodHold
	ok, err := decode(pod, HoldAnnotation, &h)
	return h, ok, err
}

// Waiting is an upgrade that waits on the node for its time, for admins to see.
type Waiting struct {
	Revision  string      `json:"revision"`
	Requested metav1.Time `json:"requested"`
	// At or Window, with TimeZone, is when it begins.
	At       *metav1.Time `json:"at,omitempty"`
	Window   string       `json:"window,omitempty"`
	TimeZone string       `json:"tz,omitempty"`
}

// Encode returns w as the value of WaitingAnnotation.
func (w Waiting) Encode() string { return encode(w) }

// WaitingOf reads a pod's WaitingAnnotation, and returns false without one.
func WaitingOf(pod *corev1.Pod) (Waiting, bool, error) {
	var w Waiting
	ok, err := decode(pod, WaitingAnnotation, &w)
	return w, ok, err
}

// Rollback is the revision that an owner wants to go back to.
type Rollback struct {
	Revision string `json:"revision"` // the hash of the revision to go back to
	// From is the revision that was the target at that time: a newer target ends the rollback.
	From      string      `json:"from"`
	Requested metav1.Time `json:"requested"`
}

// Encode returns r as the value of RollbackAnnotation.
func (r Rollback) Encode() string { return encode(r) }

// RollbackOf reads a pod's RollbackAnnotation, and returns false without one.
func RollbackOf(pod *corev1.Pod) (Rollback, bool, error) {
	var r Rollback
	ok, err := decode(pod, RollbackAnnotation, &r)
	if err == nil && ok && (r.Revision == "" || r.From == "") {
		err = fmt.Errorf("annotation %s of pod %s/%s names no revision", RollbackAnnotation, pod.Namespace, pod.Name)
	}
	return r, ok, err
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("upgrade: encode annotation: " + err.Error()) // strings, numbers and times
	}
	return string(b)
}

// decode returns whether pod has the annotation.
func decode(pod *corev1.Pod, annotation string, into any) (bool, error) {
	value, ok := pod.Annotations[annotation]
	if !ok {
		return false, nil
	}
	if err := json.Unmarshal([]byte(value), into); err != nil {
		return true, fmt.Errorf("annotation %s of pod %s/%s: %w", annotation, pod.Namespace, pod.Name, err)
	}
	return true, nil
}
