package queue

import (
	"errors"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/schedule"
)

const (
	// firstRetry and longestRetry bound the time until the cloud is asked again after it has refused.
	firstRetry, longestRetry = 5 * time.Second, 5 * time.Minute
	// spread is the time over which upgrades begin once the cloud is back or their time has come, so that a
	// thousand nodes whose network returns, or which have the same window, do not ask at once.
	spread = 5 * time.Second
)

// entry is the file of an upgrade. State is WaitingForCloud for all that wait: what else they wait for
// depends on the time.
type entry struct {
	api.Upgrade
	Force bool `json:"force,omitempty"`
}

// item is an upgrade in memory. It does not change: each change is another item.
type item struct {
	entry
	window *schedule.Window // nil: At, or as soon as the cloud can be reached

	failures int
	retry    time.Time // by the monotonic clock: not tried before
	problem  string    // of the last attempt
	images   bool      // the last attempt failed because of its images
}

func newItem(e entry) (*item, error) {
	it := (&item{entry: e}).soon()
	if e.Window == "" {
		return it, nil
	}
	w, err := schedule.ParseWindow(e.Window, e.TimeZone, time.Local)
	it.window = &w
	return it, err
}

func (it *item) pod() types.NamespacedName {
	return types.NamespacedName{Namespace: it.Namespace, Name: it.Pod}
}

// same reports whether other requests the same.
func (it *item) same(other *item) bool {
	at := func(u *time.Time) time.Time {
		if u == nil {
			return time.Time{}
		}
		return *u
	}
	return it.UID == other.UID && it.Revision == other.Revision && it.Force == other.Force &&
		at(it.At).Equal(at(other.At)) && it.Window == other.Window && it.TimeZone == other.TimeZone
}

// soon has the next attempt made within spread.
func (it item) soon() *item {
	it.failures, it.retry = 0, time.Now().Add(rand.N(spread))
	return &it
}

// in has the state changed.
func (it item) in(state api.UpgradeState) *item {
	it.State = state
	return &it
}

func (it item) ended(state api.UpgradeState, message string, now time.Time) *item {
	now = now.UTC().Round(0)
	it.State, it.Message, it.Ended = state, message, &now
	return &it
}

// failed has the next attempt made after a backoff, which doubles.
func (it item) failed(err error) *item {
	it.failures++
	it.images = ota.VerdictOf(err) == ota.NoImages
	it.problem = ""
	if !errors.Is(err, errNotNow) {
		it.problem = oneLine(err)
	}
	b := wait.Backoff{Duration: firstRetry, Factor: 2, Cap: longestRetry, Jitter: 0.25, Steps: it.failures}
	for range it.failures - 1 {
		b.Step()
	}
	it.retry = time.Now().Add(b.Step())
	return &it
}

// next returns when it may begin, which is now at the earliest.
func (it *item) next(now time.Time) time.Time {
	switch {
	case it.window != nil:
		return it.window.Next(now)
	case it.At != nil && it.At.After(now):
		return *it.At
	}
	return now
}

// wait returns for how long it is not attempted.
func (it *item) wait(now time.Time) time.Duration {
	left := time.Until(it.retry)
	if early := it.next(now).Sub(now); early > 0 {
		left = max(left, early+rand.N(spread))
	}
	return left
}

// contradicts reports whether the pod is not, or not any more, what the upgrade was requested for.
func (it *item) contradicts(pod *corev1.Pod) bool {
	if pod == nil || string(pod.UID) != it.UID || pod.DeletionTimestamp != nil {
		return true
	}
	need := api.Condition(pod, api.NeedCondition)
	return need == nil || need.Status != corev1.ConditionTrue || api.RevisionOf(need) != it.Revision
}

// pulling reports whether the pod's images are still not there, after an attempt that failed because
// of them.
func (it *item) pulling(pod *corev1.Pod) bool {
	if !it.images || pod == nil {
		return false
	}
	image := api.Condition(pod, api.ImageCondition)
	return image != nil && image.Status != corev1.ConditionTrue
}
