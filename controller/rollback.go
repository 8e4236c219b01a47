package controller

import (
	"context"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollback"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/status"
	"github.com/edgehub-io/edgehub/controller/successor"
	"github.com/edgehub-io/edgehub/ota/api"
)

// revisionsOf returns the revisions to which owners may want to go back. They are those of the last reconcile unless
// something has changed: what the apiserver said of a rollback is with them.
func (s *scope) revisionsOf(target string, all []*appsv1.ControllerRevision) *rollback.Revisions {
	own := slices.DeleteFunc(all, func(r *appsv1.ControllerRevision) bool { return !daemonset.Controls(s.object, r) })
	if !s.state.revisions.Are(target, own) {
		s.state.revisions = rollback.NewRevisions(target, own, func(pod *corev1.Pod) bool {
			return rollback.RestartsSidecars(s.nodes.Get(pod.Spec.NodeName))
		})
	}
	return s.state.revisions
}

// rollBack patches the pods whose owners go back to an earlier revision. A pod that failed is tried again
// with backoff, and holds up nothing else. At most rollout.Burst of them are patched, and fewer asked about (hasTimeToAsk), so that
// a step does not wait for thousands; the next one goes on with the others.
func (s *scope) rollBack(ctx context.Context, revisions *rollback.Revisions, pods []*corev1.Pod) {
	revisions.Retain(pods)
	s.askForEarlier(ctx, revisions, pods)
	var patches []status.PodPatch
	for _, pod := range pods {
		if _, reports := pod.Annotations[api.UpgradedOfflineAnnotation]; s.options.Policy.InPlace && reports || revisions.ReturnOf(pod, s.options.Policy.InPlace).Unsettled != "" {
			continue // its owner went back from what it runs, and bringBack would give it that again
		}
		if patch := revisions.Patch(pod, s.options.Policy); patch != nil {
			patches = append(patches, status.PodPatch{Pod: pod, Patch: patch, Spec: true})
		}
	}
	patches = s.ready(patches, pods, time.Now())
	if len(patches) > rollout.Burst {
		patches = patches[:rollout.Burst]
		s.queue.Add(s.key)
	}
	done := s.patchPods(ctx, patches)
	if t := s.state.rollout; t != nil {
		for _, pod := range done.Changed {
			t.restarts[pod.UID] = restart{readySince(pod), time.Now().Add(restartTime)}
		}
	}
	if ctx.Err() == nil {
		s.events.RolledBack(s.object, &s.state.reported, done, len(s.state.patchBackoff) > 0)
	}
}

// askForEarlier asks the apiserver, once for each wish, what it would make of the revision that an owner wants.
func (s *scope) askForEarlier(ctx context.Context, revisions *rollback.Revisions, pods []*corev1.Pod) {
	for _, pod := range pods {
		earlier := revisions.Unasked(pod, s.options.Policy)
		if earlier == nil {
			continue
		}
		if !s.hasTimeToAsk() {
			s.queue.Add(s.key)
			return
		}
		s.asks()
		admission := s.admissionOf(ctx, earlier, pod)
		if ctx.Err() != nil {
			return // the answer may be that there was no time for one
		}
		revisions.Answer(pod, admission)
	}
}

func (s *scope) admissionOf(ctx context.Context, revision *appsv1.ControllerRevision, old *corev1.Pod) rollback.Admission {
	pod, err := successor.PodOf(s.object, revision, old)
	if err != nil {
		return rollback.Admission{Why: err.Error()}
	}
	verdict := s.successors.Ask(ctx, pod, old)
	out := rollback.Admission{Refused: verdict.Result == successor.Refused, Why: verdict.Why}
	if verdict.Pod != nil {
		out.Images = map[string]string{}
		for _, c := range slices.Concat(verdict.Pod.Spec.InitContainers, verdict.Pod.Spec.Containers) {
			out.Images[c.Name] = c.Image
		}
	}
	return out
}

// restartTime is for how long a pod that got other images counts as unavailable without a change of
// its Ready condition. By default, a container has 30 s to stop; the rest is for kubelet, which has to see
// the images and to report. A pod without a readiness probe may be Ready throughout.
const restartTime = 40 * time.Second

// restart is that of a pod's containers by kubelet, because of other images.
type restart struct {
	ready metav1.Time // the transition of the pod's Ready condition before it
	until time.Time
}

// restarting returns until when pod counts as unavailable because of a restart, or zero.
func (s *step) restarting(pod *corev1.Pod) time.Time {
	r, ok := s.state.rollout.restarts[pod.UID]
	if ready := readySince(pod); !ok || !ready.Equal(&r.ready) {
		return time.Time{}
	}
	return r.until
}

func readySince(pod *corev1.Pod) metav1.Time {
	if c := api.Condition(pod, corev1.PodReady); c != nil {
		return c.LastTransitionTime
	}
	return metav1.Time{}
}
