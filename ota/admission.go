package ota

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	// answerWithin is how long an upgrade waits for edgehub-controller: it answers within a second, and another replica
	// takes over within twenty.
	answerWithin = 5 * time.Second
	// lookEvery is the time between two looks at whether it has.
	lookEvery = 200 * time.Millisecond
)

// checkSuccessor fails if the next pod would not come in place of this one: admission would refuse it, or its node has no place
// or room for it. unknown is why it is not known what admission says, "" if it is. pods are the node's. The error of a request
// that reached no apiserver is returned as it is.
func (s *server) checkSuccessor(ctx, caller context.Context, pods []corev1.Pod, pod *corev1.Pod) (unknown string, err error) {
	target, ok := api.NextOf(pod)
	if !ok || !target.Asks {
		return "", s.checkNode(ctx, caller, pods, pod)
	}
	question := rand.Text()
	switch err := s.Pods.annotate(ctx, pod, api.QuestionAnnotation, question); {
	case err == nil:
	case notSent(err):
		return "", err
	case isRefused(err):
		return s.unanswered(pod, err.Error()), s.checkNode(ctx, caller, pods, pod)
	default:
		return "", s.cloudFailure(caller, err, fmt.Sprintf("ask whether the next pod would be admitted in place of pod %s", nameOf(pod)))
	}
	now, answered, err := s.awaitAnswer(ctx, caller, pod, question)
	switch {
	case err != nil:
		return "", err
	case !answered:
		return s.unanswered(pod, fmt.Sprintf("edgehub-controller has not answered within %v", answerWithin)), s.checkNode(ctx, caller, pods, pod)
	case now == nil:
		return "", nil // its deletion will say that it is gone
	}
	if err := checkPlacement(now); err != nil {
		return "", err
	}
	if target, _ := api.NextOf(now); target.Unknown != "" {
		unknown = s.unanswered(pod, api.OneLine(target.Unknown, maxUnknown))
	}
	return unknown, s.checkNode(ctx, caller, pods, now) // admission decides what it requests
}

// maxUnknown bounds what is shown of an answer, in bytes.
const maxUnknown = 300

// awaitAnswer waits until edgehub-controller has answered, and returns the pod with the answer, nil if the pod is gone.
// answered is false if it has not in time, or the cloud was lost.
func (s *server) awaitAnswer(ctx, caller context.Context, pod *corev1.Pod, question string) (now *corev1.Pod, answered bool, err error) {
	for deadline := time.Now().Add(answerWithin); time.Now().Before(deadline) && s.Offline() == ""; {
		select {
		case <-ctx.Done():
			return nil, false, s.cloudFailure(caller, ctx.Err(), fmt.Sprintf("wait for what admission says of the next pod in place of pod %s", nameOf(pod)))
		case <-time.After(lookEvery):
		}
		_, now, err = s.pods.find(ctx, nameOf(pod))
		switch {
		case notSent(err):
			return nil, false, err
		case err != nil:
			return nil, false, s.cloudFailure(caller, err, fmt.Sprintf("look up pod %s", nameOf(pod)))
		case now == nil || now.UID != pod.UID:
			return nil, true, nil
		}
		if target, ok := api.NextOf(now); ok && target.Answered == question {
			return now, true, nil
		}
	}
	return nil, false, nil
}

// unanswered logs that it is not known whether the next pod would be admitted, and returns that for the owner.
func (s *server) unanswered(pod *corev1.Pod, why string) string {
	s.Logger.Warn("whether the next pod would be admitted is not known; the upgrade goes on", "pod", nameOf(pod).String(), "uid", string(pod.UID), "why", why)
	return fmt.Sprintf("it is not known whether the cluster lets the next pod in place of pod %s: %s", nameOf(pod), why)
}
