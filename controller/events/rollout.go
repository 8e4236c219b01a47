package events

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/podclient"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Reasons of Events about a rollout.
const (
	reasonRolloutStarted  = "RolloutStarted"
	reasonRolloutComplete = "RolloutComplete"
	reasonRolloutWaiting  = "RolloutWaiting"
	reasonRolloutHeld     = "RolloutHeld"
	reasonRolloutHalted   = "RolloutHalted"
	reasonRolloutResumed  = "RolloutResumed"
	reasonDeletingFailed  = "DeletingPodsFailed"
	reasonHoldEnded       = "HoldEnded" // of a pod
)

// RolloutReported is what was last reported about a rollout.
type RolloutReported struct {
	revision string
	begun    time.Time
	reason   string // of ProgressingCondition
	complete bool   // reported once for each revision, and again when no pod is held by placement any more
	failure  string
}

// Rollout reports what is new about a rollout, on the DaemonSet and in the log.
func (r *Recorder) Rollout(ds *appsv1.DaemonSet, s *RolloutReported, p *rollout.Plan, options rollout.Options, now time.Time) {
	progressing := conditionOf(p, api.ProgressingCondition)
	if s.revision != p.Revision {
		*s = reportedBefore(ds, p, now)
		if s.reason == "" && !p.Complete() {
			s.reason = rollout.ReasonUpdating
			r.progress(ds, reasonRolloutStarted, startMessage(p, options))
		}
	}
	was := s.reason
	s.reason = progressing.Reason
	if was == s.reason {
		return
	}
	switch s.reason {
	case rollout.ReasonComplete, rollout.ReasonHeldByPlacement:
		isHeld := s.reason == rollout.ReasonHeldByPlacement
		if isHeld || !s.complete && was != "" { // else there was nothing to do
			r.progress(ds, reasonRolloutComplete, fmt.Sprintf("%s, done in %s", progressing.Message, now.Sub(s.begun).Round(time.Second/10)))
		}
		s.complete = !isHeld
	case rollout.ReasonHalted:
		r.logFor(ds).Warn("rollout halted: nodes were lost after they got the new revision",
			"revision", p.Revision, "nodes", p.Breaker.Lost, "updated", p.Breaker.Updated)
		r.warning(ds, reasonRolloutHalted, conditionOf(p, api.HaltedCondition).Message)
	case rollout.ReasonWaiting:
		r.progress(ds, reasonRolloutWaiting, progressing.Message+"; the rest is done")
	case rollout.ReasonRefused: // Deletions names the refusal
	case rollout.ReasonUpdating:
		if was == rollout.ReasonPaused || was == rollout.ReasonHalted {
			r.progress(ds, reasonRolloutResumed, progressing.Message)
		}
	default:
		r.progress(ds, reasonRolloutHeld, progressing.Message)
	}
}

func startMessage(p *rollout.Plan, options rollout.Options) string {
	message := fmt.Sprintf("controllerrevision %s: %s; at most %d of %d Ready nodes are unavailable at a time",
		p.Revision, p.Summary(), p.Max, p.Ready)
	if options.Prepull {
		message += fmt.Sprintf(", and each keeps its pod until its images are there, for %v at most", options.PrepullTimeout)
	}
	return message
}

// reportedBefore returns what another process has reported, as the conditions record it.
func reportedBefore(ds *appsv1.DaemonSet, p *rollout.Plan, now time.Time) RolloutReported {
	s := RolloutReported{revision: p.Revision, begun: now}
	progressing, complete := daemonset.Condition(ds, api.ProgressingCondition), daemonset.Condition(ds, api.CompleteCondition)
	if progressing == nil || complete == nil || rollout.RevisionIn(progressing.Message) != p.Revision {
		return s
	}
	s.reason = progressing.Reason
	s.complete = progressing.Reason == rollout.ReasonComplete
	s.begun = complete.LastTransitionTime.Time // when it was no longer complete
	return s
}

// progress reports what needs no attention.
func (r *Recorder) progress(ds *appsv1.DaemonSet, reason, message string) {
	r.logFor(ds).Info("rollout", "event", reason, "message", message)
	r.normal(ds, reason, message)
}

// Deletions posts an Event with the reason why pods could not be deleted, unless the
// last one had the same reason and pods have been refused ever since.
func (r *Recorder) Deletions(ds *appsv1.DaemonSet, s *RolloutReported, p *rollout.Plan, done podclient.DeleteResult) {
	failure := done.Problem()
	switch {
	case failure == "" && p.Refused == 0:
		s.failure = ""
	case failure != "" && failure != s.failure:
		r.logFor(ds).Warn("pods could not be deleted; each is tried again, later and later", "problem", failure)
		r.warning(ds, reasonDeletingFailed, failure+"; it is tried again")
		s.failure = failure
	}
}

// HoldEnded reports, on a pod, that it is replaced although its owner holds it. The log has the deletion.
func (r *Recorder) HoldEnded(d rollout.Deletion, revision string) {
	r.events.Event(d.Pod, corev1.EventTypeNormal, reasonHoldEnded, truncated("replaced by a pod of controllerrevision "+revision+", though "+d.Held))
}

func conditionOf(p *rollout.Plan, t appsv1.DaemonSetConditionType) appsv1.DaemonSetCondition {
	for _, c := range rollout.Conditions(p) {
		if c.Type == t {
			return c
		}
	}
	return appsv1.DaemonSetCondition{}
}
