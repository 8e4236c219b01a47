package backoff

import (
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Backoff after a failure: each wait is twice as long as the one before. The shortest is
// hardly noticed, and does not fill the log while something is refused; the longest is
// how long a person who has just mended something may have to wait to see it. A pod that
// is refused again and again holds up nobody but itself, so it waits for longer than its
// DaemonSet: between its tries there is one look at the others, which does not fail and
// ends the DaemonSet's backoff.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = time.Minute
	// MinDelay and MaxDelay bound the wait of a pod.
	MinDelay = 2 * minBackoff
	MaxDelay = 5 * time.Minute
)

// DaemonSets computes when a DaemonSet may be reconciled again after a failure.
type DaemonSets = workqueue.TypedRateLimiter[cache.ObjectName]

// NewDaemonSets returns one for all DaemonSets. It is safe for concurrent use.
func NewDaemonSets() DaemonSets {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](minBackoff, maxBackoff)
}
