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

// checkSuccessor fails if the next pod would not come in place of this one: admission would refuse it, or its node has no place
// or room for it. unknown is why it is not known what admission says, "" if it is. pods are the node's.
func (s *server) checkSuccessor(ctx, caller context.Context, pods []corev1.Pod, pod *corev1.Pod) (unknown string, err error) {
	now, unknown, err := s.askAdmission(ctx, caller, pod)
	if err != nil {
		return "", err
	}
	return unknown, s.checkNode(ctx, caller, pods, now) // admission decides what it requests
}

// askAdmission fails if admission would refuse the next pod in place of this one. Only the cloud knows: the hub asks by an
// annotation of the pod, and edgehub-controller answers in its target. It returns the pod with the answer. Without one the
// upgrade goes on, as with a controller that cannot ask, and unknown says why. The error of a question that reached no
// apiserver is returned as it is.
func (s *server) askAdmission(ctx, caller context.Context, pod *corev1.Pod) (now *corev1.Pod, unknown string, err error) {
	if target, ok := upgrade.NextOf(pod); !ok || !target.Asks {
		return pod, "", nil
	}
	doing := fmt.Sprintf("ask whether the next pod would be admitted in place of pod %s", nameOf(pod))
	question := rand.Text()
	switch err := s.Pods.annotate(ctx, pod, upgrade.QuestionAnnotation, question); {
	case err == nil:
	case notSent(err):
		return nil, "", err
	case isRefused(err):
		return pod, s.unanswered(pod, err.Error()), nil
	default:
		return nil, "", s.cloudFailure(caller, err, doing)
	}
	for deadline := time.Now().Add(answerWithin); time.Now().Before(deadline); {
		select {
		case <-ctx.Done():
			return nil, "", s.cloudFailure(caller, ctx.Err(), doing)
		case <-time.After(lookEvery):
		}
		_, now, err := s.find(ctx, nameOf(pod))
		if err != nil {
			return nil, "", s.cloudFailure(caller, err, doing)
		}
		if now == nil || now.UID != pod.UID {
			return pod, "", nil // its deletion will say so
		}
		if target, ok := upgrade.NextOf(now); ok && target.Answered == question {
			if target.Unknown != "" {
				unknown = s.unanswered(pod, target.Unknown)
			}
			return now, unknown, checkPlacement(now)
		}
	}
	return pod, s.unanswered(pod, fmt.Sprintf("edgehub-controller has not answered within %v", answerWithin)), nil
}

// unanswered logs that it is not known whether the next pod would be admitted, and returns that for the owner.
func (s *server) unanswered(pod *corev1.Pod, why string) string {
	s.Logger.Warn("whether the next pod would be admitted is not known; the upgrade goes on", "pod", nameOf(pod).String(), "uid", string(pod.UID), "why", why)
	return fmt.Sprintf("it is not known whether the cluster lets the next pod in place of pod %s: %s", nameOf(pod), why)
}
