package controller

import (
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/tools/cache"
)

// retryDelay is how long a DaemonSet must be left alone because it could not be
// reconciled; 0 or less is not at all. Changes of pods and nodes, of which there may be
// hundreds a second, do not end the wait. A change of what the DaemonSet itself asks for
// does: whoever made it waits to see what it does.
func (r *reconciler) retryDelay(key cache.ObjectName, now time.Time) time.Duration {
	t := r.states.get(key)
	if t == nil || !t.until.After(now) {
		return 0
	}
	ds, err := r.daemonSets.DaemonSets(key.Namespace).Get(key.Name)
	if err != nil || !sameSpec(t.ds, ds) {
		return 0
	}
	return t.until.Sub(now)
}

// failed returns when the DaemonSet is to be tried again.
func (r *reconciler) failed(key cache.ObjectName, now time.Time) time.Duration {
	wait := r.backoff.When(key)
	if t := r.states.get(key); t != nil {
		t.until = now.Add(wait)
	}
	return wait
}

// succeeded ends the wait, which a change of the DaemonSet may have cut short.
func (r *reconciler) succeeded(key cache.ObjectName) {
	r.backoff.Forget(key)
	if t := r.states.get(key); t != nil {
		t.until = time.Time{}
	}
}

func sameSpec(a, b *appsv1.DaemonSet) bool {
	return a.UID == b.UID && a.Generation == b.Generation && maps.Equal(a.Annotations, b.Annotations) &&
		a.DeletionTimestamp.IsZero() == b.DeletionTimestamp.IsZero()
}
