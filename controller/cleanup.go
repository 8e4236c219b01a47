package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/status"
	"github.com/edgehub-io/edgehub/controller/workload"
	"github.com/edgehub-io/edgehub/ota/api"
)

// cleanup undoes everything on an unmanaged DaemonSet. problem is "" unless it asks for a
// strategy and Kubernetes updates it itself.
func (s *scope) cleanup(ctx context.Context, problem string) error {
	s.stopRollout(s.key, s.state)
	if err := s.unmarkPods(ctx, false, ""); err != nil {
		return err
	}
	s.state.stopOwned()
	want := status.Conditions{api.InvalidCondition: nil}
	if problem != "" {
		want.Set(rollout.Invalid(problem))
	}
	if err := s.say(ctx, want.RemoveRollout(), &rollout.Report{}); err != nil {
		return err
	}
	if problem == "" {
		s.forget(s.key)
	}
	return nil
}

// unmarkPods removes the marks from the pods of a workload that no longer asks for them. A
// pod that kept the condition would let its node delete it. With keepTargets, the targets
// stay, so that nodes that pull images need not start again; advance corrects them. policy is
// the pods' next, "" for none.
//
// Only its watch, which is kept until all is done, shows that a workload once asked. If it
// changed while no controller was watching, the marks stay until the pods are
// replaced, or the workload opts in and out again: finding them would take a list of all
// pods of the cluster. The same holds for a workload that is deleted without its pods.
func (s *scope) unmarkPods(ctx context.Context, keepTargets bool, policy string) error {
	if s.state.marked == noMarks {
		return nil
	}
	if w := s.state.owned; w != nil && w.Matches(s.object) { // else another workload has the name by now
		patches, err := s.unmarkPatches(ctx, keepTargets, policy)
		if err != nil {
			return err
		}
		done := s.podClient.Patch(ctx, patches)
		w.Wrote(done.Changed)
		if err := done.Err(); err != nil {
			return err
		}
		s.events.Unmarked(s.object, &s.state.reported, len(done.Changed), s.state.marked == rolloutMarks)
	}
	s.state.marked = noMarks
	s.metrics.forgetPods(s.key)
	return nil
}

// unmarkPatches returns the patches that remove the marks. It lists the pods, since the
// watch may not have seen the last marks yet, and page by page, since they arrive untrimmed.
func (s *scope) unmarkPatches(ctx context.Context, keepTargets bool, policy string) ([]status.PodPatch, error) {
	var (
		patches []status.PodPatch
		now     = time.Now()
		pods    = s.client.CoreV1().Pods(s.key.Namespace)
	)
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return pods.List(ctx, o) })
	err := pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: s.state.owned.Selector().String()}, func(object runtime.Object) error {
		pod, ok := object.(*corev1.Pod)
		if !ok || !daemonset.Controls(s.object, pod) || !pod.DeletionTimestamp.IsZero() {
			return nil
		}
		want := status.Mark{Policy: policy}
		if keepTargets {
			want.Target = pod.Annotations[api.TargetAnnotation]
		}
		if patch := status.PatchMark(want, pod, now); patch != nil {
			patches = append(patches, status.PodPatch{
				Pod:   &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}},
				Patch: patch,
			})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list pods to take their marks off: %w", err)
	}
	return patches, nil
}

// stopRollout forgets a rollout that is no longer asked for.
func (r *reconciler) stopRollout(key key, t *state) {
	t.rollout = nil
	r.nodes.Unsubscribe(key)
	r.metrics.forgetRollout(key)
}

// forget drops everything that is kept of a workload.
func (r *reconciler) forget(key key) {
	if t := r.states.remove(key); t != nil {
		t.stopOwned()
		r.missing.Set(t.object.GetUID(), nil)
		r.nodes.Unsubscribe(key)
		if key.kind == workload.DaemonSet { // a StatefulSet has none, and may be a DaemonSet's namesake
			r.stopRollout(key, t)
		}
	}
	r.metrics.forgetPods(key)
}

// stop is called when no worker runs any more.
func (r *reconciler) stop() {
	for key := range r.states.byKey {
		r.forget(key)
	}
	r.nodes.Wait()
}
