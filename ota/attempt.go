package ota

import (
	"context"
	"errors"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// Attempt is one attempt to carry out an upgrade that has waited in a Queue.
type Attempt struct {
	Pod      types.NamespacedName
	UID      types.UID // of the pod that it was requested for
	Revision string    // the target at that time
	// Begin is called once all checks have passed, before the deletion is sent. If it returns an
	// error, nothing is sent.
	Begin func() error
}

// Verdict is what a failed attempt means for an upgrade that waits.
type Verdict int

// The verdicts.
const (
	NotYet   Verdict = iota // nothing was done; the cloud or the node may permit it later
	NoImages                // nothing was done; the pod's images are not on the node yet
	Void                    // it does not apply any more
	Gone                    // the pod is gone or being deleted, or another has its name
	Unknown                 // it is not known whether this attempt, or an earlier one, has deleted the pod
)

// VerdictOf returns the verdict of an error of API.Upgrade. It is NotYet for any other error.
func VerdictOf(err error) Verdict {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.verdict
	}
	return NotYet
}

// withVerdict gives err a verdict if it is a failure, and returns it.
func withVerdict(v Verdict, err error) error {
	if f, ok := errors.AsType[*failure](err); ok {
		f.verdict = v
	}
	return err
}

// as gives the failures of a check a verdict.
func as(v Verdict, c func(*corev1.Pod) error) func(*corev1.Pod) error {
	return func(pod *corev1.Pod) error { return withVerdict(v, c(pod)) }
}

// Upgrade upgrades a pod now, as a request does while the cloud is there: with all checks, and once.
// Its errors have a verdict. It is safe for concurrent use.
func (a *API) Upgrade(ctx context.Context, attempt Attempt) error {
	s := a.server
	// Kubernetes deletes the pods of a Node that was deleted, so one that is gone says nothing of the upgrade, either.
	if err := s.checkRegistered(attempt.Pod); err != nil {
		return withVerdict(Unknown, err)
	}
	pod, err := s.withPods(ctx, attempt.Pod, true, func(limited context.Context, pods []corev1.Pod, pod *corev1.Pod) error {
		err := check(pod, attempt.checkUID, as(Gone, checkNotDeleting), as(Void, checkNeed), as(Void, attempt.checkRevision), checkCloudsTarget, s.checkRuns, s.checkUpgrade)
		if err == nil {
			_, err = s.checkSuccessor(limited, ctx, pods, pod) // what is not known is logged
		}
		if err == nil {
			err = attempt.Begin()
		}
		if err != nil {
			return err
		}
		return s.deletionFailure(ctx, pod, s.deletePod(limited, pod))
	})
	if pod == nil && VerdictOf(err) != Gone {
		err = withVerdict(Unknown, err) // it was not looked up
	}
	s.logUpgrade(ctx, attempt.Pod, pod, codeOf(err), err, false)
	return err
}

// Refused returns why a pod cannot be upgraded now, a hold aside, in one line for people; nil if it can.
// It asks nobody.
func (a *API) Refused(pod *corev1.Pod) error { return a.server.checkUpgrade(pod) }

// Last returns the newest of a pod's upgrades and rollbacks.
func (a *API) Last(pod types.NamespacedName) (api.Upgrade, bool) { return a.server.upgradeOf(pod) }

func (a Attempt) checkUID(pod *corev1.Pod) error {
	if pod.UID == a.UID {
		return nil
	}
	return withVerdict(Gone, failf(http.StatusNotFound, "pod %s with UID %s was replaced by one with UID %s", a.Pod, a.UID, pod.UID))
}

// checkRevision relies on checkNeed.
func (a Attempt) checkRevision(pod *corev1.Pod) error {
	revision := api.RevisionOf(api.Condition(pod, api.NeedCondition))
	if revision == a.Revision {
		return nil
	}
	return failf(http.StatusConflict, "the upgrade of pod %s would be to revision %q by now, and was requested to %q: request it again", a.Pod, revision, a.Revision)
}
