package controller

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/informer"
	"github.com/edgehub-io/edgehub/controller/rollback"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/status"
	"github.com/edgehub-io/edgehub/controller/workload"
	"github.com/edgehub-io/edgehub/ota/api/placement"
)

// markPods carries out the strategy OTA. With Options.Prepull, nodes pull the images
// before their owners ask.
func (s *scope) markPods(ctx context.Context) error {
	w, err := s.ownedWatch(ctx)
	if err != nil {
		return err
	}
	s.nodes.Subscribe(ctx, s.key, s.requeue())
	if !w.Synced() || !s.nodes.Synced() {
		return nil // they call when they are
	}
	s.state.marked = otaMarks
	revision := workload.TargetRevision(s.object, w.Revisions())
	if revision == nil { // the workload or a revision will change
		return s.reportOTA(ctx, w, nil, nil)
	}
	target, err := daemonset.TargetOf(revision)
	if err != nil {
		return err
	}
	revisions := s.revisionsOf(target.Revision, w.Revisions())
	s.bringBack(ctx, revisions, w.ActivePods(s.object))
	s.rollBack(ctx, revisions, w.ActivePods(s.object))
	pods := w.ActivePods(s.object)
	old := oldOf(pods, target.Revision)
	refused, answers := s.refusedOf(ctx, revision, old, old, pods, true)
	if s.options.Continue != target.Revision {
		refused = cmp.Or(refused, s.state.lacks)
	}
	target = s.admitted(target)
	postponed := s.lookForRoom(ctx, target, s.roomAskers(old, refused, target.Revision), answers)
	obstacles := s.orNoRoom(s.obstacles(refused))
	target.MinReadySeconds = workload.MinReadySecondsOf(s.object)
	if s.ds == nil {
		target = target.WithoutNode()
	} else {
		target.Placement = new(s.placementRule())
	}
	now, m := time.Now(), status.NewMarker(target, s.options.Policy, revisions, obstacles)
	if s.options.Prepull {
		m = status.NewPrepullMarker(target, s.options.Policy, revisions, obstacles, now)
	}
	m = m.Answering(s.answerTo(answers, postponed)).Returning(s.notReconciled).InPlace(s.inPlaceOf(ctx, revisions, target, old))
	p := status.PlanMarks(m, pods, now)
	s.metrics.setPods(s.key, &p)
	done := s.patchPods(ctx, s.ready(p.Patches, pods, now))
	if ctx.Err() == nil {
		s.events.Marked(s.object, &s.state.reported, target.Revision, p, done, len(s.state.patchBackoff) > 0)
		s.events.Rollbacks(pods, done.Changed)
		s.events.NotReconciled(pods, done.Changed)
	}
	return errors.Join(done.ErrIfNone(), s.reportOTA(ctx, w, revision, revisions))
}

// reportOTA says whether every node, or every pod of a StatefulSet, runs the target, nil while that is not known, and has
// missing pods made.
func (s *scope) reportOTA(ctx context.Context, w *informer.Owned, target *appsv1.ControllerRevision, revisions *rollback.Revisions) error {
	if target == nil {
		return s.sayOTA(ctx, rollout.AwaitRevision()[0], rollout.NewAwaitReport(s.object))
	}
	now := time.Now()
	in := rollout.Input{
		DaemonSet: s.ds, Revision: daemonset.HashOf(target), Nodes: s.nodes.List(), Pods: w.AllPods(s.object), Now: now,
		RolledBack: revisions.Granted(s.options.Policy), Observations: s.state.observations, Timing: s.timing,
		LackingWhy: s.state.restore.why,
	}
	var (
		p       rollout.Plan
		lacking []lack
		late    []rollout.MissingPod
	)
	if sts, ok := s.object.(*appsv1.StatefulSet); ok {
		p, lacking = rollout.NewStatefulSetPlan(sts, in), s.lackingOf(sts, in.Pods, now)
		s.setLacks(lacksOf(lacking, s.state.restore.why, now))
	} else {
		p = rollout.NewOTAPlan(in)
		lacking = lackingOn(p.Missing)
		s.setLacks(p.Lacks())
		late = s.annotateNodes(p.Missing, now)
	}
	s.state.throttle.Took(now, time.Now())
	s.requeueAt(p.Wake, now)
	complete := rollout.OTACondition(&p)
	return errors.Join(s.restore(ctx, target, lacking), s.sayOTA(ctx, complete, rollout.NewReport(s.object, &p, complete.Reason, late)))
}

// sayOTA sets the report, and the condition of a DaemonSet. That of a StatefulSet would be removed: see applyStatefulSet.
func (s *scope) sayOTA(ctx context.Context, complete appsv1.DaemonSetCondition, report *rollout.Report) error {
	var want status.Conditions
	if s.ds != nil {
		want = status.ForOTA(s.ds, complete)
	}
	return s.say(ctx, want, report)
}

// setLacks records why no other pod may be upgraded.
func (s *scope) setLacks(lacks string) {
	if lacks != s.state.lacks {
		s.state.lacks = lacks
		s.queue.Add(s.key) // the other pods are marked with it
	}
}

// oldOf returns the pods that are not of the revision with this hash.
func oldOf(pods []*corev1.Pod, hash string) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] == hash })
}

// refusedOf returns why the apiserver would refuse the next pod of any that needs an upgrade, or "". It is asked now if
// the owner of one in asking wants to know, and, with show, so often that people see what is so. old are those of earlier
// revisions, asking those of them that owners upgrade, and pods all of them. answers is false if owners have to wait.
func (s *scope) refusedOf(ctx context.Context, newest *appsv1.ControllerRevision, old, asking, pods []*corev1.Pod, show bool) (refused string, answers bool) {
	p, about := toShow, old
	if i := slices.IndexFunc(asking, isUnanswered); i >= 0 {
		p, about = toAnswer, asking[i:]
	}
	answers = true
	if len(about) > 0 && (show || p == toAnswer) {
		_, asked := s.successorOf(ctx, newest, about[0], pods, p)
		answers = asked || p != toAnswer
	}
	return s.refused(newest), answers
}

// placementRule is the DaemonSet's, with the node selector that admission gives to its pods. Whether there is to be a
// pod is decided by the template alone, so tolerations that admission adds do not count.
func (s *scope) placementRule() placement.Rule {
	rule := placement.RuleOf(&s.ds.Spec.Template.Spec)
	if admitted := s.state.successor.nodeSelector; len(admitted) > 0 {
		rule.NodeSelector = maps.Clone(rule.NodeSelector)
		if rule.NodeSelector == nil {
			rule.NodeSelector = map[string]string{}
		}
		maps.Copy(rule.NodeSelector, admitted)
	}
	return rule
}

// nodesByName returns a function that returns all nodes, and collects them when it is called first: most pods of a rollout ask
// for none.
func (s *scope) nodesByName() func() map[string]*corev1.Node {
	return sync.OnceValue(func() map[string]*corev1.Node {
		out := map[string]*corev1.Node{}
		for _, node := range s.nodes.List() {
			out[node.Name] = node
		}
		return out
	})
}

// obstacles returns a function that says why the node of a pod would get no pod of the new
// revision, which is the DaemonSet's template: NewestRevision has made sure of that. The next pod of a
// StatefulSet may run on another node, so nothing stands in its way but refused, if it is not "".
func (s *scope) obstacles(refused string) func(*corev1.Pod) string {
	if s.ds == nil {
		return func(*corev1.Pod) string { return refused }
	}
	next := placement.New(s.placementRule())
	nodes := s.nodesByName()
	return func(pod *corev1.Pod) string {
		if node := nodes()[rollout.NodeOf(pod)]; node != nil {
			return cmp.Or(next.Obstacle(node), refused)
		}
		return refused
	}
}
