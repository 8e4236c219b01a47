package controller

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/backoff"
	"github.com/edgehub-io/edgehub/controller/rollback"
	"github.com/edgehub-io/edgehub/controller/status"
	"github.com/edgehub-io/edgehub/controller/successor"
	"github.com/edgehub-io/edgehub/ota/api"
)

// One reconcile asks about askedAtOnce pods at most, and asks no more once askTime has passed: a webhook may take seconds for
// each, and all else waits meanwhile. patchEvery is when questions about patches go on that have to wait.
const (
	askedAtOnce = 10
	askTime     = time.Second
	patchEvery  = time.Second
)

// hasTimeToAsk reports whether this reconcile may ask about one more pod.
func (s *scope) hasTimeToAsk() bool {
	return s.asked == 0 || s.asked < askedAtOnce && time.Now().Before(s.askUntil)
}

// asks has one question count.
func (s *scope) asks() {
	if s.asked++; s.asked == 1 {
		s.askUntil = time.Now().Add(askTime)
	}
}

// askPatch asks the apiserver what it would make of a pod.
func (s *scope) askPatch(ctx context.Context, pod *corev1.Pod, patch []byte) successor.Verdict {
	s.asks()
	return s.successors.AskPatch(ctx, pod, patch)
}

// inPlaceAnswer is what the apiserver says of the upgrade in place of a pod.
type inPlaceAnswer struct {
	upgrade string // as JSON; another upgrade of the pod, as of other images, is another question
	why     string // it cannot be; "" if it can, or if that is not known
	final   bool   // it is not asked again
	// retry is when it is asked again, unless final: admission has refused, and an admin may change that, or has not answered, as while
	// a webhook is down.
	retry backoff.Retry
}

// inPlaceOf returns which of the pods in old may be upgraded to target while the cloud is away. The apiserver is asked for each pod and
// target until it admits, some at a time. The last answer stands in the pod's mark: another controller does not ask again about what was
// admitted, and leaves the other marks as they are until it has asked.
func (s *scope) inPlaceOf(ctx context.Context, revisions *rollback.Revisions, target api.Target, old []*corev1.Pod) func(*corev1.Pod) status.InPlace {
	before, now := s.state.inPlace, time.Now()
	s.state.inPlace = map[types.UID]inPlaceAnswer{}
	out := map[types.UID]status.InPlace{}
	if !s.options.Policy.InPlace || s.successors == nil {
		old = nil
	}
	for _, pod := range old {
		answer := before[pod.UID]
		upgrade, problem := revisions.InPlace(pod, target)
		if problem != "" {
			out[pod.UID], s.state.inPlace[pod.UID] = status.InPlace{Why: problem}, answer // it may end soon: nodes write the phases of pods
			continue
		}
		if question := encodeUpgrade(upgrade); answer.upgrade != question {
			answer = inPlaceAnswer{upgrade: question}
			answer.final, answer.why = answerIn(pod, upgrade)
		}
		switch {
		case answer.final, now.Before(answer.retry.Until):
		case ctx.Err() != nil || !s.hasTimeToAsk() || !s.successors.MayAskPatch(s.key.Namespace):
			s.queue.AddAfter(s.key, patchEvery)
		default:
			s.askInPlace(ctx, pod, upgrade, &answer)
		}
		s.state.inPlace[pod.UID] = answer
		if !answer.final && answer.retry.Until.After(now) {
			s.requeueAt(answer.retry.Until, now)
		}
		switch {
		case answer.why != "":
			out[pod.UID] = status.InPlace{Why: answer.why}
		case answer.final:
			out[pod.UID] = status.InPlace{Changes: upgrade.Changes}
		}
	}
	return func(pod *corev1.Pod) status.InPlace { return out[pod.UID] }
}

// askInPlace asks the apiserver for what the pod would get after its upgrade.
func (s *scope) askInPlace(ctx context.Context, pod *corev1.Pod, upgrade rollback.InPlace, answer *inPlaceAnswer) {
	verdict := s.askPatch(ctx, pod, upgrade.Patch(pod))
	switch verdict.Result {
	case successor.Admitted:
		answer.why = rollback.Rewritten(pod, verdict.Pod, upgrade.Images())
		if answer.final = answer.why == ""; answer.final {
			answer.why = api.NotInPlace(verdict.Pod, upgrade.Changes)
		}
	case successor.Refused:
		answer.why = "the apiserver refuses the pod with the new images: " + verdict.Why
	default: // what it has said before still counts
	}
	if !answer.final {
		answer.retry.Refused(time.Now())
	}
	s.log.Debug("the apiserver was asked whether a pod can be upgraded in place", s.key.kind.Lower(), s.key.String(), "pod", pod.Name,
		"revision", upgrade.Revision, "result", verdict.Result, "why", answer.why, "unknown", verdict.Why)
}

func encodeUpgrade(u rollback.InPlace) string {
	b, err := json.Marshal(u)
	if err != nil {
		panic("controller: encode upgrade: " + err.Error()) // strings only
	}
	return string(b)
}

// answerIn returns what the pod's mark says of an upgrade to this revision: whether it is for this very one, or why there can be none.
func answerIn(pod *corev1.Pod, u rollback.InPlace) (admitted bool, why string) {
	target, ok := api.NextOf(pod)
	if !ok || target.Revision != u.Revision {
		return false, ""
	}
	return slices.Equal(target.InPlace, u.Changes), target.NotInPlace
}
