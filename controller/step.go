package controller

import (
	"context"
	"errors"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/events"
	"github.com/edgehub-io/edgehub/controller/expectations"
	"github.com/edgehub-io/edgehub/controller/podclient"
	"github.com/edgehub-io/edgehub/controller/rollback"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/status"
	"github.com/edgehub-io/edgehub/ota/api"
)

// rolloutState is what is remembered of a DaemonSet with AdvancedRollingUpdate.
// Losing it delays the rollout and does no harm, but for restarts: those that are under way then do not
// count. See package rollout.
type rolloutState struct {
	observations *rollout.Observations
	expected     *expectations.Deletions
	// confirmed is the newest revision according to a list sent when generation was
	// new.
	confirmed  *appsv1.ControllerRevision
	generation int64
	asked      sets.Set[string] // hashes of the pods' revisions at that time
	reported   events.RolloutReported
	restarts   map[types.UID]restart // of pods whose owners went back
}

// step is one step of a rollout: the scope, and what is known at its time.
type step struct {
	*scope
	now     time.Time
	pods    []*corev1.Pod // all that the DaemonSet controls
	newest  *appsv1.ControllerRevision
	target  api.Target
	answers bool          // owners' questions
	asking  []*corev1.Pod // those that owners may upgrade
	// revisions are those of the DaemonSet.
	revisions *rollback.Revisions
	plan      rollout.Plan
}

// advance carries out the strategy AdvancedRollingUpdate: one step of it, once everything
// has been listed and the target revision is known.
func (s *scope) advance(ctx context.Context) error {
	w, err := s.ownedWatch(ctx)
	if err != nil {
		return err
	}
	s.nodes.Subscribe(ctx, s.key, s.requeue())
	if !w.Synced() || !s.nodes.Synced() {
		return nil // they call when they are
	}
	if s.state.rollout == nil {
		s.state.rollout = &rolloutState{observations: rollout.NewObservations(), expected: expectations.NewDeletions(), restarts: map[types.UID]restart{}}
	}
	pods := w.AllPods(s.ds)
	newest, err := s.targetRevision(ctx, w, pods)
	if err != nil {
		return err
	}
	if newest == nil { // the DaemonSet or a revision will change
		return s.say(ctx, status.ForRollout(s.ds, rollout.AwaitRevision()...), rollout.NewAwaitReport(s.object))
	}
	target, err := daemonset.TargetOf(newest)
	if err != nil {
		return err
	}
	revisions := s.revisionsOf(target.Revision, append(w.Revisions(), newest))
	s.bringBack(ctx, revisions, pods)
	s.rollBack(ctx, revisions, w.AllPods(s.ds))
	if err := ctx.Err(); err != nil {
		return err
	}
	var asking []*corev1.Pod // owners upgrade none but those that they had rolled back
	old := oldOf(pods, target.Revision)
	for _, pod := range old {
		if revisions.Decide(pod, s.options.Policy).Done(pod) {
			asking = append(asking, pod)
		}
	}
	_, answers := s.refusedOf(ctx, newest, old, asking, pods, s.options.Prepull)
	return (&step{scope: s, answers: answers, asking: asking, now: time.Now(), pods: w.AllPods(s.ds), newest: newest, target: s.admitted(target), revisions: revisions}).run(ctx)
}

// run deletes the pods that may go now, marks the others, and reports the plan.
func (s *step) run(ctx context.Context) error {
	deleted := s.planAndDelete(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	s.revertFailed()
	markErr := s.markRollout(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	s.requeueAt(s.state.rollout.expected.Next(s.now), s.now) // the watch may have no event for a pod that was kept
	s.requeueAt(s.plan.Wake, s.now)
	s.metrics.setRollout(s.key, &s.plan)
	s.events.Rollout(s.ds, &s.state.rollout.reported, &s.plan, s.options, s.now)
	for _, d := range s.plan.Delete {
		if d.Held != "" && s.state.rollout.expected.Has(d.Pod.UID) {
			s.events.HoldEnded(d, s.target.Revision)
		}
	}
	s.events.Deletions(s.ds, &s.state.rollout.reported, &s.plan, deleted)
	restoreErr := s.restore(ctx, s.newest, lackingOn(s.plan.Missing))
	late := s.annotateNodes(s.plan.Missing, s.now)
	want := status.ForRollout(s.ds, rollout.Conditions(&s.plan)...)
	report := rollout.NewReport(s.object, &s.plan, want[api.ProgressingCondition].Reason, late)
	return errors.Join(deleted.Err(), markErr, restoreErr, s.say(ctx, want, report))
}

// planAndDelete makes the plan and carries out its deletions, and those whose requests
// have to be sent again. Only planning counts for the throttle.
func (s *step) planAndDelete(ctx context.Context) podclient.DeleteResult {
	expected := s.state.rollout.expected
	again := expected.Observed(s.pods, func(pod *corev1.Pod) bool { return s.unsettled(pod) != "" }, s.now)
	for i := range again {
		again[i].Unchanged = s.options.Policy.InPlace
	}
	s.plan = s.newPlan()
	s.state.throttle.Took(s.now, time.Now())
	s.permitDeletions(ctx)
	for _, d := range s.plan.Delete {
		s.log.Info("pod is deleted, to be replaced by one of the new revision",
			"daemonset", s.key.String(), "revision", s.target.Revision, "node", rollout.NodeOf(d.Pod), "pod", d.Pod.Name, "why", d.Reason)
	}
	return s.podClient.Delete(ctx, expected, append(again, s.plan.Delete...))
}

// unsettled returns why a pod must not be deleted because of what its node did while the cloud was away, "" if it may be.
func (s *step) unsettled(pod *corev1.Pod) string {
	return s.revisions.ReturnOf(pod, s.options.Policy.InPlace).Unsettled
}

func (s *step) newPlan() rollout.Plan {
	expected := s.state.rollout.expected
	maps.DeleteFunc(s.state.rollout.restarts, func(_ types.UID, r restart) bool { return !s.now.Before(r.until) })
	return rollout.NewPlan(rollout.Input{
		DaemonSet: s.ds, Options: s.options, Revision: s.target.Revision,
		Nodes: s.nodes.List(), Pods: s.pods,
		Deleted: expected.Has, Refused: expected.Refusal, RefusedInARow: expected.RefusalsInARow(),
		RolledBack: s.revisions.Granted(s.options.Policy), Restarting: s.restarting,
		Observations: s.state.rollout.observations, Halted: rollout.HaltedRevision(s.ds),
		Unsettled: s.unsettled, LackingWhy: s.state.restore.why,
		Now: s.now, Timing: s.timing,
	})
}

// revertFailed takes deletions that failed out of the plan, which takes them for done.
func (s *step) revertFailed() {
	expected := s.state.rollout.expected
	for _, d := range s.plan.Delete {
		if !expected.Has(d.Pod.UID) {
			if refusal := expected.Refusal(d.Pod.UID); refusal != nil {
				s.plan.Revert(d, refusal)
			}
		}
	}
	s.plan.RefusedInARow = expected.RefusalsInARow()
}

// markRollout gives pods the policy, and has those in the plan's Pulls, and no others, ask
// their nodes to pull images. It patches at most a burst of them, so that deletions do not
// wait for thousands; the next step goes on with the others.
func (s *step) markRollout(ctx context.Context) error {
	refused := s.refused(s.newest)
	postponed := s.lookForRoom(ctx, s.target, s.roomAskers(s.asking, refused, s.target.Revision), s.answers)
	m := status.NewMarker(s.target, s.options.Policy, s.revisions, s.orNoRoom(s.obstacles(refused))).
		Answering(s.answerTo(s.answers, postponed)).Returning(s.notReconciled)
	patches := s.ready(status.RolloutPatches(m, &s.plan, s.pods, s.state.rollout.expected.Has, s.now), s.pods, s.now)
	if len(s.plan.Pulls)+len(patches) > 0 || s.options.Policy.Encode() != "" {
		s.state.marked = rolloutMarks
	}
	if len(patches) > rollout.Burst {
		patches = patches[:rollout.Burst]
		s.queue.Add(s.key)
	}
	done := s.patchPods(ctx, patches)
	if ctx.Err() == nil {
		s.events.RolloutMarked(s.ds, &s.state.reported, s.target.Revision, done, len(s.state.patchBackoff) > 0)
		s.events.Rollbacks(s.pods, done.Changed)
		s.events.NotReconciled(s.pods, done.Changed)
	}
	return done.ErrIfNone()
}
