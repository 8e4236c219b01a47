package events

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/podclient"
	"github.com/edgehub-io/edgehub/controller/rollout"
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
)

// RolloutReported is what was reported about a rollout. Each thing is reported when it begins to be
// so; what another process reported before is read from the conditions.
type RolloutReported struct {
	revision string
	begun    time.Time
	// reason is that of the condition, as last reported.
	reason   string
	complete bool // reported, once for each revision
	failure  string
}

// Rollout reports what is new about a rollout, on the DaemonSet and in the log.
func (r *Recorder) Rollout(ds *appsv1.DaemonSet, s *RolloutReported, p *rollout.Plan, options rollout.Options, now time.Time) {
	reason := conditionFor(rollout.ProgressingCondition, p).Reason
	if s.revision != p.Revision {
		*s = reportedBefore(ds, p, now)
		if s.reason == "" && !p.Complete() {
			s.reason = rollout.ReasonUpdating
			message := fmt.Sprintf("controllerrevision %s: %s; at most %d of %d Ready nodes are unavailable at a time",
				p.Revision, p.Summary(), p.Max, p.Ready)
			if options.Prepull {
				message += fmt.Sprintf(", and each keeps its pod until its images are there, for %v at most", options.PrepullTimeout)
			}
			r.progress(ds, reasonRolloutStarted, message)
		}
	}
	was := s.reason
	s.reason = reason
	if was == reason {
		return
	}
	switch reason {
	case rollout.ReasonComplete:
		r.complete(ds, s, p, was, now)
	case rollout.ReasonHalted:
		message := conditionFor(rollout.HaltedCondition, p).Message
		r.log.Warn("rollout halted: nodes were lost after they got the new revision",
			"daemonset", ds.Namespace+"/"+ds.Name, "revision", p.Revision, "nodes", p.Breaker.Lost, "updated", p.Breaker.Updated)
		r.warning(ds, reasonRolloutHalted, truncated(message))
	case rollout.ReasonWaiting:
		r.progress(ds, reasonRolloutWaiting, conditionFor(rollout.ProgressingCondition, p).Message+"; the rest is done")
	case rollout.ReasonRefused: // deletions names the refusal
	case rollout.ReasonUpdating:
		if was == rollout.ReasonPaused || was == rollout.ReasonHalted {
			r.progress(ds, reasonRolloutResumed, conditionFor(rollout.ProgressingCondition, p).Message)
		}
	default:
		r.progress(ds, reasonRolloutHeld, conditionFor(rollout.ProgressingCondition, p).Message)
	}
}

// reportedBefore returns the history of a rollout as the conditions have it.
func reportedBefore(ds *appsv1.DaemonSet, p *rollout.Plan, now time.Time) RolloutReported {
	s := RolloutReported{revision: p.Revision, begun: now}
	progressing, complete := daemonset.Condition(ds, rollout.ProgressingCondition), daemonset.Condition(ds, rollout.CompleteCondition)
	if progressing == nil || complete == nil || rollout.RevisionIn(progressing.Message) != p.Revision {
		return s
	}
	s.reason = progressing.Reason
	s.complete = progressing.Reason == rollout.ReasonComplete
	s.begun = complete.LastTransitionTime.Time // when it was no longer complete
	return s
}

// complete reports the end of a rollout, unless there was nothing to do.
func (r *Recorder) complete(ds *appsv1.DaemonSet, s *RolloutReported, p *rollout.Plan, was string, now time.Time) {
	if s.complete {
		return
	}
	s.complete = true
	if was == "" {
		return
	}
	r.progress(ds, reasonRolloutComplete, fmt.Sprintf("controllerrevision %s: %s, done in %s",
		p.Revision, p.Summary(), now.Sub(s.begun).Round(time.Second/10)))
}

// progress reports what needs no attention.
func (r *Recorder) progress(ds *appsv1.DaemonSet, reason, message string) {
	r.log.Info("rollout", "daemonset", ds.Namespace+"/"+ds.Name, "event", reason, "message", message)
	r.normal(ds, reason, truncated(message))
}

// Deletions posts an Event with the reason why pods could not be deleted, unless the
// last one had the same reason and pods have been refused ever since.
func (r *Recorder) Deletions(ds *appsv1.DaemonSet, s *RolloutReported, p *rollout.Plan, done podclient.DeleteResult) {
	failure := done.Problem()
	switch {
	case failure == "" && p.Refused == 0:
		s.failure = ""
	case failure != "" && failure != s.failure:
		r.log.Warn("pods could not be deleted; each is tried again, later and later",
			"daemonset", ds.Namespace+"/"+ds.Name, "problem", failure)
		r.warning(ds, reasonDeletingFailed, truncated(failure+"; it is tried again"))
		s.failure = failure
	}
}

func conditionFor(t appsv1.DaemonSetConditionType, p *rollout.Plan) appsv1.DaemonSetCondition {
	for _, c := range rollout.Conditions(p) {
		if c.Type == t {
			return c
		}
	}
	return appsv1.DaemonSetCondition{}
}
