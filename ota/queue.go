package ota

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// Queue has the upgrades that begin later: when the cloud is back, at a time, or in a window. It
// must be safe for concurrent use.
type Queue interface {
	// Add puts an upgrade in place of the pod's last one, and returns it as it is now. When its error
	// is nil, the request survives a crash. A request that differs in nothing is not a new one. It
	// returns ErrBegun if the last one has begun, and not ended.
	Add(pod *corev1.Pod, revision string, when When) (api.Upgrade, error)
	// State returns a pod's upgrade, also for some time after it has ended.
	State(pod types.NamespacedName) (api.Upgrade, bool)
	// States returns all, in the order of api.UpgradeList.
	States() []api.Upgrade
	// Cancel ends the upgrade of a pod that waits, and reports whether there was one. It returns
	// ErrBegun if that upgrade has begun.
	Cancel(pod types.NamespacedName) (bool, error)
}

// ErrBegun is returned for an upgrade that can be neither changed nor cancelled any more: the pod's
// deletion may have been sent.
var ErrBegun = errors.New("the upgrade has begun")

// queues reports whether upgrades may wait.
func (s *server) queues() bool { return s.Queue != nil && !s.NoQueueing }

// schedule has the upgrade of a pod wait for its time. Its images are pulled meanwhile.
func (s *server) schedule(pod *corev1.Pod, when When) (accepted, error) {
	if !s.queues() {
		return accepted{}, failf(http.StatusNotImplemented, "pod %s cannot be upgraded later: this hub was started with --queue-upgrades=false", nameOf(pod))
	}
	if err := check(pod, checkNotDeleting, checkNeed, checkOwner, checkPlacement); err != nil {
		return accepted{}, err
	}
	if err := s.pullAhead(pod); err != nil {
		return accepted{}, err
	}
	state, err := s.enqueue(pod, when)
	if err != nil {
		return accepted{}, err
	}
	next := time.Now()
	if state.Next != nil {
		next = *state.Next
	}
	return accepted{code: http.StatusAccepted, text: fmt.Sprintf("Upgrade of pod %s scheduled for %s", nameOf(pod), next.Format(time.RFC3339))}, nil
}

// pullAhead requests the images of a pod's upgrade, if this hub pulls images and knows which, and
// nobody has requested them yet. It relies on checkNeed.
func (s *server) pullAhead(pod *corev1.Pod) error {
	target, known := api.NextOf(pod)
	if s.ImagePulls == nil || !known {
		return nil
	}
	if state, ok := s.ImagePulls.State(nameOf(pod)); ok && state.UID == string(pod.UID) && state.Revision == target.Revision {
		return nil
	}
	if err := s.ImagePulls.Request(pod, target, false); err != nil {
		return fmt.Errorf("the upgrade of pod %s was not queued, since the pre-pull of its images could not be written down: %w", nameOf(pod), err)
	}
	return nil
}

// queue has the upgrade of a pod that has passed all checks wait for the cloud.
func (s *server) queue(pod *corev1.Pod, when When) (accepted, error) {
	if _, err := s.enqueue(pod, when); err != nil {
		return accepted{}, err
	}
	return accepted{code: http.StatusAccepted, text: fmt.Sprintf("Upgrade of pod %s queued: it starts when the cloud can be reached", nameOf(pod))}, nil
}

func (s *server) enqueue(pod *corev1.Pod, when When) (api.Upgrade, error) {
	state, err := s.Queue.Add(pod, api.RevisionOf(api.Condition(pod, api.NeedCondition)), when)
	switch {
	case errors.Is(err, ErrBegun):
		err = failf(http.StatusConflict, "pod %s is being upgraded already: GET …/upgrade shows its state", nameOf(pod))
	case err != nil:
		err = fmt.Errorf("the upgrade of pod %s was not queued, since it could not be written down: %w", nameOf(pod), err)
	default:
		err = s.withdrawUnanswered(pod)
	}
	return state, err
}

// withdrawQueued ends an upgrade of a pod that waits, because the pod is being upgraded now, or its owner
// wants an earlier revision. If that cannot be written down, the queue finds out whether there is
// something to do.
func (s *server) withdrawQueued(pod *corev1.Pod) {
	if s.Queue == nil {
		return
	}
	if _, err := s.Queue.Cancel(nameOf(pod)); err != nil && !errors.Is(err, ErrBegun) {
		s.Logger.Warn("a queued upgrade of a pod was not withdrawn", "pod", nameOf(pod).String(), "err", err)
	}
}

// upgradeOf returns the last upgrade or rollback of a pod: one that has not ended, or else the newer.
func (s *server) upgradeOf(pod types.NamespacedName) (last api.Upgrade, ok bool) {
	if s.Queue != nil {
		last, ok = s.Queue.State(pod)
	}
	if s.InPlace != nil {
		if own, has := s.InPlace.State(pod); has && (!ok || last.State.Final() && own.Requested.After(last.Requested)) {
			last, ok = own, true
		}
	}
	if s.Rollbacks == nil {
		return last, ok
	}
	r, rolled := s.Rollbacks.State(pod)
	if rolled && (!ok || last.State.Final() && (!r.State.Final() || r.Requested.After(last.Requested))) {
		return r, true
	}
	return last, ok
}

// showUpgrade answers with the state of a pod's upgrade or rollback.
func (s *server) showUpgrade(w http.ResponseWriter, _ *http.Request, name types.NamespacedName) error {
	state, ok := s.upgradeOf(name)
	if !ok {
		return failf(http.StatusNotFound, "no upgrade of pod %s waits, is in progress, or has ended of late: GET /pods shows whether the pod needs one, POST to this path starts it", name)
	}
	return writeJSON(w, state, "  ")
}

// cancelUpgrade ends an upgrade or rollback that waits.
func (s *server) cancelUpgrade(w http.ResponseWriter, _ *http.Request, name types.NamespacedName) error {
	var was bool
	var err error
	if s.Queue != nil {
		was, err = s.Queue.Cancel(name)
	}
	last, ok := s.upgradeOf(name)
	if err == nil && !was && last.Action == api.RollbackAction && last.State == api.WaitingForCloud {
		was, err = true, s.Rollbacks.Withdraw(name)
	}
	switch {
	case err == nil && !was && last.InPlace != nil && last.InPlace.State == api.InProbation:
		return failf(http.StatusConflict, "the upgrade in place of pod %s has begun, and cannot be cancelled any more: POST …/rollback has the earlier version return", name)
	case errors.Is(err, ErrBegun), err == nil && !was && ok && !last.State.Final():
		return failf(http.StatusConflict, "the upgrade or rollback of pod %s has begun, and cannot be cancelled any more: GET on this path shows its state", name)
	case err != nil:
		return fmt.Errorf("the upgrade or rollback of pod %s is not cancelled, since that could not be written down: %w", name, err)
	case was:
		return writeLine(w, http.StatusOK, "Upgrade cancelled for pod "+name.String())
	case ok:
		return failf(http.StatusNotFound, "no upgrade of pod %s waits: the last one has ended as %s", name, last.State)
	}
	return failf(http.StatusNotFound, "no upgrade of pod %s waits", name)
}

// listUpgrades answers with all upgrades and rollbacks.
func (s *server) listUpgrades(w http.ResponseWriter, _ *http.Request) error {
	all := []api.Upgrade{}
	if s.Queue != nil {
		all = append(all, s.Queue.States()...)
	}
	if s.InPlace != nil {
		all = append(all, s.InPlace.States()...)
	}
	if s.Rollbacks != nil {
		all = append(all, s.Rollbacks.States()...)
	}
	slices.SortFunc(all, api.Upgrade.Compare)
	return writeJSON(w, api.UpgradeList{Items: all}, "  ")
}
