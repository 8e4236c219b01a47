package ota

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// InPlace carries out upgrades while the cloud is away, without another pod. It must be safe for concurrent use.
type InPlace interface {
	// Begin upgrades a pod to its target. When it returns nil, that survives a crash, and kubelet is about to replace containers;
	// an upgrade to this revision that is on probation is not a new one. It returns a *NotInPlaceError if it does nothing, for
	// a reason that the owner is to know. first is called before the upgrade counts, once nothing else is in its way, and its
	// error is returned.
	Begin(ctx context.Context, pod *corev1.Pod, target api.Target, first func() error) error
	// Check returns a *NotInPlaceError if it would do nothing, whichever images are on the node.
	Check(pod *corev1.Pod, target api.Target) error
	// GoBack has a pod return to the version that it has in the cloud, and reports false if the node cannot do that by itself.
	// When its error is nil, that survives a crash.
	GoBack(pod types.UID) (bool, error)
	// Runs returns the revision to which a pod was upgraded, and "" if it is the cloud's. settled is false while it is on
	// probation.
	Runs(pod types.UID) (revision string, settled bool)
	// Effective returns pods as they run, in place of what the cloud has of them.
	Effective(pods []*corev1.Pod) []*corev1.Pod
	// Describe gives a pod, which is the caller's own, the condition and annotation of its upgrade that the cloud has, or is to have.
	Describe(pod *corev1.Pod)
	// State returns the last upgrade of a pod, and States those of all.
	State(pod types.NamespacedName) (api.Upgrade, bool)
	States() []api.Upgrade
}

// NotInPlaceError is why a pod cannot be upgraded in place.
type NotInPlaceError struct {
	Why string // one line for people
	// Missing are the images, as pods name them, that are not on the node: with them it can.
	Missing []string
}

func (e *NotInPlaceError) Error() string { return "not in place: " + e.Why }

// startOffline starts the upgrade of a pod that has passed all checks without the cloud, or has it wait for the cloud.
func (s *server) startOffline(ctx context.Context, pod *corev1.Pod, when When) (accepted, error) {
	why, err := s.beginInPlace(ctx, pod)
	switch {
	case err != nil:
		return accepted{}, err
	case why == "":
		s.withdrawQueued(pod)
		return accepted{code: http.StatusOK, text: "Start updating pod " + nameOf(pod).String() + api.OfflineInPlace}, nil
	}
	if !s.queues() {
		return accepted{}, failf(http.StatusServiceUnavailable, "pod %s was not upgraded: %s; it cannot be done in place: %s; send the request again once the cloud is back, which GET %s tells",
			nameOf(pod), s.Offline(), why, api.Readyz)
	}
	done, err := s.queue(pod, when)
	if why != notMarked {
		done.text += "; it cannot be done in place: " + why
	}
	return done, err
}

// notMarked is why a pod whose workload does not ask for it is not upgraded in place.
const notMarked = "its workload does not ask for that"

// mayBeInPlace reports whether the controller has found out whether a pod can be upgraded in place.
func (s *server) mayBeInPlace(pod *corev1.Pod) bool {
	target, ok := api.NextOf(pod)
	return s.InPlace != nil && ok && (target.NotInPlace != "" || len(target.InPlace) > 0)
}

// beginInPlace returns "" if the pod is being upgraded in place, or else why it is not, for the owner.
func (s *server) beginInPlace(ctx context.Context, pod *corev1.Pod) (why string, _ error) {
	if !s.mayBeInPlace(pod) {
		return notMarked, nil
	}
	target, _ := api.NextOf(pod)
	err := s.InPlace.Begin(ctx, pod, target, func() error {
		if s.Rollbacks == nil {
			return nil
		}
		return s.Rollbacks.Withdraw(nameOf(pod)) // the pod stays, and the cloud would roll it back once it has followed
	})
	no, ok := errors.AsType[*NotInPlaceError](err)
	switch {
	case ok && len(no.Missing) > 0:
		return "", failf(http.StatusConflict, "pod %s was not upgraded: without the cloud, its images have to be on this node, and these are not: %s; POST …/imagepull pulls those of the new version, if a registry can be reached",
			nameOf(pod), strings.Join(no.Missing, ", "))
	case ok:
		return no.Why, nil
	case err != nil:
		return "", fmt.Errorf("pod %s was not upgraded in place, since that could not be written down: %w", nameOf(pod), err)
	}
	return "", nil
}

// checkRuns fails if the pod was upgraded in place to the revision that it would be upgraded to, and the cloud does not know.
func (s *server) checkRuns(pod *corev1.Pod) error {
	if s.InPlace == nil {
		return nil
	}
	target, _ := api.NextOf(pod)
	runs, settled := s.InPlace.Runs(pod.UID)
	switch {
	case runs == "" || runs != target.Revision:
		return nil
	case settled:
		then := "the cloud follows when it is back; there is nothing to do"
		if c := api.Condition(pod, api.ReconciledCondition); c != nil && c.Status == corev1.ConditionFalse {
			then = "the cloud cannot follow: " + api.OneLine(c.Message, maxUnknown) + "; the admin can mend that"
		}
		return withVerdict(Void, failf(http.StatusForbidden, "pod %s needs no upgrade: it was upgraded in place to revision %s, and %s", nameOf(pod), runs, then))
	case s.Offline() != "":
		return nil // the request is repeated
	}
	return failf(http.StatusConflict, "pod %s is being upgraded in place: wait until it is known whether the new version works, GET …/upgrade shows it", nameOf(pod))
}

// undoInPlace has a pod go back to the version that it has in the cloud, if it was upgraded in place and the node can do that by
// itself. It returns false if it is not for it to decide.
func (s *server) undoInPlace(pod *corev1.Pod, want rollbackRequest) (_ accepted, done bool, _ error) {
	if s.InPlace == nil {
		return accepted{}, false, nil
	}
	own := pod.Labels[appsv1.ControllerRevisionHashLabelKey]
	if runs, _ := s.InPlace.Runs(pod.UID); runs == "" || want.revision != "" && want.revision != own {
		return accepted{}, false, nil
	}
	if err := s.mayGoBack(pod, want); err != nil {
		return accepted{}, false, err
	}
	done, err := s.InPlace.GoBack(pod.UID)
	if err != nil {
		return accepted{}, false, fmt.Errorf("the rollback of pod %s was not started, since it could not be written down: %w", nameOf(pod), err)
	}
	return accepted{code: http.StatusOK, text: fmt.Sprintf("Start rolling back pod %s (in place)", nameOf(pod))}, done, nil
}

// InPlace reports whether an upgrade of a pod takes effect at once while the cloud is away. It asks nobody.
func (a *API) InPlace(pod *corev1.Pod) bool {
	target, _ := api.NextOf(pod)
	return a.server.mayBeInPlace(pod) && a.server.InPlace.Check(pod, target) == nil
}

// describe adds the condition and annotation of its upgrade in place to a pod, which is the caller's own.
func (s *server) describe(pod *corev1.Pod) {
	if s.InPlace != nil {
		s.InPlace.Describe(pod)
	}
}

// effective returns a pod as it runs.
func (s *server) effective(pod *corev1.Pod) *corev1.Pod {
	if s.InPlace == nil {
		return pod
	}
	return s.InPlace.Effective([]*corev1.Pod{pod})[0]
}
