package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/rollback"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/status"
	"github.com/edgehub-io/edgehub/controller/successor"
	"github.com/edgehub-io/edgehub/ota/api"
)

// reportWithin is how long a node may be Ready before it reports the outcome of an upgrade: a probation takes half an hour at most, besides
// minReadySeconds and the owner's checks (package ota/inplace), and a hub may be stopped for some hours while somebody works on the node.
const reportWithin = 6 * time.Hour

// problem is why a pod cannot be given what it runs. The zero value is none.
type problem struct {
	reason, message string // of api.ReconciledCondition
}

// bringBack gives the pods that were upgraded while the cloud was away what they run; see package rollback. Each try makes the next
// one for that pod wait longer, whatever became of it: a node that was taken over may report all the time.
func (s *scope) bringBack(ctx context.Context, revisions *rollback.Revisions, pods []*corev1.Pod) {
	before, awaited, backoff := s.state.notReconciled, s.state.awaited, s.state.returnBackoff
	s.state.notReconciled, s.state.awaited = map[types.UID]problem{}, map[types.UID]time.Time{}
	if before == nil { // what another controller has found out counts until this one has asked about the pods, some at a time
		before = problemsOf(pods)
	}
	if _, asks := s.object.GetAnnotations()[api.OfflineUpgradeAnnotation]; !asks {
		pods = nil // what nodes report counts for nothing
	}
	backoff.Retain(pods)
	for _, pod := range pods {
		back := revisions.ReturnOf(pod, s.options.Policy.InPlace)
		patch := back.Patch(pod)
		now := before[pod.UID]
		switch {
		case back.AwaitsNode():
			now = s.awaitReport(pod, now, awaited[pod.UID])
		case patch == nil:
			now = problem{back.Reason, back.Message}
		case !backoff.Ready(pod.UID, time.Now()):
		case ctx.Err() != nil || !s.hasTimeToAsk():
			s.queue.Add(s.key)
		default:
			now = s.giveWhatRuns(ctx, pod, back, patch)
			backoff.Failed(pod.UID, time.Now())
		}
		if now != (problem{}) {
			s.state.notReconciled[pod.UID] = now
		}
	}
	s.requeueAt(backoff.Next(time.Now()), time.Now())
	s.metrics.setNotReconciled(s.key, len(s.state.notReconciled))
}

// problemsOf returns what the conditions of pods say.
func problemsOf(pods []*corev1.Pod) map[types.UID]problem {
	out := map[types.UID]problem{}
	for _, pod := range pods {
		if c := api.Condition(pod, api.ReconciledCondition); c != nil {
			out[pod.UID] = problem{c.Reason, c.Message}
		}
	}
	return out
}

// awaitReport returns what is wrong with a pod whose node has yet to report. since is when that was first seen while the node was
// Ready, or zero. Nothing is wrong for reportWithin; then the hub may be gone, without which kubelet keeps the node Ready as well. That
// stands until the node reports.
func (s *scope) awaitReport(pod *corev1.Pod, before problem, since time.Time) problem {
	now := time.Now()
	switch {
	case before.reason == api.ReasonNoReport:
		return before
	case !rollout.IsReady(s.nodes.Get(pod.Spec.NodeName)):
		return problem{}
	case since.IsZero():
		since = now
	case now.Sub(since) >= reportWithin:
		return problem{api.ReasonNoReport, fmt.Sprintf("its node has been Ready for %v and has not reported what became of the upgrade: look whether edgehub runs there; deleting the pod makes a new one", reportWithin)}
	}
	s.state.awaited[pod.UID] = since
	s.requeueAt(since.Add(reportWithin), now)
	return problem{}
}

// giveWhatRuns patches a pod, after the apiserver was asked whether it takes the images as they are: another string would have kubelet
// restart the containers.
func (s *scope) giveWhatRuns(ctx context.Context, pod *corev1.Pod, back rollback.Return, patch []byte) problem {
	const refused = "the apiserver refuses the images that it runs: "
	verdict := s.askPatch(ctx, pod, back.Question(pod))
	switch verdict.Result {
	case successor.Refused:
		return problem{api.ReasonPatchRefused, refused + verdict.Why}
	case successor.Admitted:
		if why := rollback.Rewritten(pod, verdict.Pod, back.Images); why != "" {
			return problem{api.ReasonImagesDiffer, why + ", and it runs the former"}
		}
	default:
		if verdict.Asked {
			return problem{api.ReasonPatchRefused, "the apiserver does not say whether it takes the images that it runs: " + verdict.Why}
		}
	}
	done := s.podClient.Patch(ctx, []status.PodPatch{{Pod: pod, Patch: patch, Spec: true}})
	s.state.owned.Wrote(done.Changed)
	switch {
	case len(done.Changed) > 0:
		s.events.Returned(s.object, done.Changed[0])
	case done.Failed > 0 && ctx.Err() == nil:
		return problem{api.ReasonPatchRefused, refused + done.Err().Error()}
	}
	return problem{}
}

// notReconciled returns reason and message of api.ReconciledCondition of pod, "" if it is to have none.
func (s *scope) notReconciled(pod *corev1.Pod) (reason, message string) {
	p := s.state.notReconciled[pod.UID]
	return p.reason, p.message
}
