package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/backoff"
	"github.com/edgehub-io/edgehub/controller/events"
	"github.com/edgehub-io/edgehub/controller/informer"
	"github.com/edgehub-io/edgehub/controller/rollback"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/workload"
)

// state is what the controller remembers of a workload from one reconcile to
// the next. Nothing in it decides what should be: losing it costs a list and a repeated
// Event. It belongs to the worker that holds the workload's key.
type state struct {
	// object is the workload as of the last reconcile. Another of the same name gets a new state.
	object workload.Object
	// retry determines when to reconcile again after a failure, and patchBackoff which pods
	// could not be patched.
	retry        backoff.Retry
	patchBackoff backoff.Pods
	// owned is nil unless the workload opted in.
	owned *informer.Owned
	// marked is the kind of marks that pods may have.
	marked markKind
	// rollout is nil unless it is a DaemonSet that is rolled out by its nodes.
	rollout *rolloutState
	// observations are those of the strategy OTA, which only reports; those of a rollout are in rollout.
	observations *rollout.Observations
	successor    successorState
	inPlace      map[types.UID]inPlaceAnswer // by pod
	// notReconciled has the pods that run what the cloud cannot give them, returnBackoff when pods are next tried, and awaited since
	// when nodes have been Ready that have yet to report on a pod.
	notReconciled map[types.UID]problem
	returnBackoff backoff.Pods
	awaited       map[types.UID]time.Time
	rooms         map[types.UID]nodeRoom // by the pod that is to be replaced
	// revisions are nil until the target is known.
	revisions *rollback.Revisions
	// lacks is why no owner may upgrade with the strategy OTA: pods that Kubernetes has not made. seen is since when
	// pods of a StatefulSet that were there have been gone; zero: they are there.
	lacks   string
	seen    map[string]time.Time
	restore restoreState
	// throttle is the only part that others than the worker use.
	throttle backoff.Throttle
	// written is what the conditions were last patched to.
	written written
	// reported is what was last reported in Events.
	reported events.Reported
}

// stopOwned ends the watch of pods and revisions, if there is one.
func (t *state) stopOwned() {
	if t.owned != nil {
		t.owned.Stop()
		t.owned = nil
	}
}

// markKind is a reason for marks on pods.
type markKind int

const (
	noMarks      markKind = iota
	otaMarks              // OTA
	rolloutMarks          // AdvancedRollingUpdate, with images first or a policy
)

// states holds the state of each workload. It is safe for concurrent use.
type states struct {
	mu    sync.Mutex
	byKey map[key]*state // guarded by mu; the values are not
}

func newStates() *states { return &states{byKey: map[key]*state{}} }

// get returns nil without a state for the workload.
func (r *states) get(key key) *state {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byKey[key]
}

func (r *states) getOrAdd(key key) *state {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.byKey[key]
	if !ok {
		t = &state{patchBackoff: backoff.Pods{}, returnBackoff: backoff.Pods{}, observations: rollout.NewTrustingObservations()}
		r.byKey[key] = t
	}
	return t
}

// remove returns the state that was removed, or nil.
func (r *states) remove(key key) *state {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.byKey[key]
	delete(r.byKey, key)
	return t
}
