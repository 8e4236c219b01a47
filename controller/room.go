package controller

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/podclient"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/room"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

const (
	// roomEvery is how often it is looked again for room that was not there.
	roomEvery = 30 * time.Second
	// maxWaiting is how many pods are read that wait for a node: an owner asks once a second, at most. Of more than that,
	// the first by namespace and name count.
	maxWaiting = 500
)

// noRoom is why the node of a pod has no room for the next one.
type noRoom struct {
	why  string
	next time.Time // when it is looked again
}

// lookForRoom looks whether there is room for the next pod, where a pod's owner has asked for its upgrade, or there was none
// some time ago. A node sees its own pods; this is about those that wait for a node, too. answers is whether
// questions are answered now.
func (s *scope) lookForRoom(ctx context.Context, target upgrade.Target, pods []*corev1.Pod, answers bool) {
	if s.ds == nil {
		return
	}
	now, found := time.Now(), map[types.UID]noRoom{}
	waiting := sync.OnceValues(func() ([]corev1.Pod, error) { return s.podsOf(ctx, "", corev1.PodPending, maxWaiting) })
	for _, pod := range pods {
		was, ok := s.state.noRoom[pod.UID]
		switch {
		case answers && isUnanswered(pod):
		case ok && now.Before(was.next):
			found[pod.UID] = was
			continue
		case !ok:
			continue
		}
		why, err := s.noRoomFor(ctx, target, pod, waiting)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("whether other pods would take the room of the next one is not known", s.key.kind.Lower(), s.key.String(), "pod", pod.Name, "err", err)
		}
		if why != "" {
			found[pod.UID] = noRoom{why, now.Add(roomEvery)}
		}
	}
	s.state.noRoom = found
	for _, f := range found {
		s.requeueAt(f.next, now)
	}
}

// noRoomFor returns why there would be no room for the next pod, "" if there is, or nobody waits who could take it.
func (s *scope) noRoomFor(ctx context.Context, target upgrade.Target, pod *corev1.Pod, waiting func() ([]corev1.Pod, error)) (string, error) {
	others, err := waiting()
	if err != nil || len(others) == 0 {
		return "", err
	}
	name := rollout.NodeOf(pod)
	here, err := s.podsOf(ctx, name, "", 0)
	if err != nil {
		return "", err
	}
	old := podIn(here, pod.UID)
	if old == nil {
		return "", nil // it is gone
	}
	ctx, cancel := context.WithTimeout(ctx, podclient.Timeout)
	defer cancel()
	nodes, err := s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if err != nil || len(nodes.Items) == 0 {
		return "", err
	}
	return room.Obstacle(&nodes.Items[0], old, target, here, others), nil
}

func podIn(pods []corev1.Pod, uid types.UID) *corev1.Pod {
	for i := range pods {
		if pods[i].UID == uid {
			return &pods[i]
		}
	}
	return nil
}

// podsOf returns the pods on a node, or with "" those on none, in a phase, if that is not "". most of 0 is all.
func (s *scope) podsOf(ctx context.Context, node string, phase corev1.PodPhase, most int64) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, podclient.Timeout)
	defer cancel()
	by := fields.Set{"spec.nodeName": node}
	if phase != "" {
		by["status.phase"] = string(phase)
	}
	list, err := s.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: by.AsSelector().String(), Limit: most})
	if err != nil {
		return nil, fmt.Errorf("list the pods with %s: %w", by, err)
	}
	return list.Items, nil
}

// isUnanswered reports whether the owner of a pod's node waits for an answer.
func isUnanswered(pod *corev1.Pod) bool {
	question := upgrade.QuestionOf(pod)
	if question == "" {
		return false
	}
	target, _, err := upgrade.TargetOf(pod)
	return err != nil || target.Answered != question
}

// orNoRoom adds to what obstacles returns what lookForRoom has found.
func (s *scope) orNoRoom(obstacles func(*corev1.Pod) string) func(*corev1.Pod) string {
	return func(pod *corev1.Pod) string { return cmp.Or(obstacles(pod), s.state.noRoom[pod.UID].why) }
}
