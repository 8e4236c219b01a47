package ota

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/upgrade"
)

const (
	// answerWithin is how long an upgrade waits for edgehub-controller: it answers within a second, and another replica
	// takes over within twenty.
	answerWithin = 5 * time.Second
	// lookEvery is the time between two looks at whether it has.
	lookEvery = 200 * time.Millisecond
)

// checkAdmission fails if admission would refuse the next pod in place of this one. Only the cloud knows: the hub asks by an
// annotation of the pod, and edgehub-controller answers in its target. Without an answer the upgrade goes on, as with a
// controller that cannot ask. The error of a question that reached no apiserver is returned as it is.
func (s *server) checkAdmission(ctx, caller context.Context, pod *corev1.Pod) error {
	if target, ok := targetOf(pod); !ok || !target.Asks {
		return nil
	}
	doing := fmt.Sprintf("ask whether the next pod would be admitted in place of pod %s", nameOf(pod))
	question := rand.Text()
	switch err := s.Pods.annotate(ctx, pod, upgrade.QuestionAnnotation, question); {
	case err == nil:
	case notSent(err):
		return err
	case isRefused(err):
		s.logUnanswered(pod, err.Error())
		return nil
	default:
		return s.cloudFailure(caller, err, doing)
	}
	for deadline := time.Now().Add(answerWithin); time.Now().Before(deadline); {
		select {
		case <-ctx.Done():
			return s.cloudFailure(caller, ctx.Err(), doing)
		case <-time.After(lookEvery):
		}
		_, now, err := s.find(ctx, nameOf(pod))
		if err != nil {
			return s.cloudFailure(caller, err, doing)
		}
		if now == nil || now.UID != pod.UID {
			return nil // its deletion will say so
		}
		if target, ok := targetOf(now); ok && target.Answered == question {
			if !target.Asks {
				s.logUnanswered(pod, "edgehub-controller could not ask; its log says why")
			}
			return checkPlacement(now)
		}
	}
	s.logUnanswered(pod, fmt.Sprintf("edgehub-controller has not answered within %v", answerWithin))
	return nil
}

func (s *server) logUnanswered(pod *corev1.Pod, why string) {
	s.Logger.Warn("whether the next pod would be admitted is not known; the upgrade goes on", "pod", nameOf(pod).String(), "uid", string(pod.UID), "why", why)
}
