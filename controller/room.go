package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/api/placement"
	"github.com/edgehub-io/edgehub/ota/api/room"
)

const (
	// roomEvery is how often it is looked again for room that was not there.
	roomEvery = 30 * time.Second
	// roomAtOnce is for how many pods it is looked in one reconcile. Hubs wait some seconds for their answers, and those for
	// the other pods come with the next one.
	roomAtOnce = 20
	// maxWaiting is how many pods that wait for a node are read, so that a cluster with thousands of them costs no more. If
	// there are more, it is not known who would take the room.
	maxWaiting = 500
	// roomTimeout bounds each request for that.
	roomTimeout = 2 * time.Second
)

// nodeRoom is what is known of the room for the next pod on a pod's node.
type nodeRoom struct {
	why     string    // there is none; or ""
	unknown string    // whether there is any is not known; or ""
	next    time.Time // when it is looked again if there is none
}

// lookForRoom looks whether there is room for the next pod, where the owner of one in asking waits for an answer, or there was
// none some time ago. A node sees its own pods; this is about those that wait for a node, too. It returns whether it has no
// answer for a pod yet.
func (s *scope) lookForRoom(ctx context.Context, target api.Target, asking []*corev1.Pod, answers bool) (postponed func(*corev1.Pod) bool) {
	known, looked, late := map[types.UID]nodeRoom{}, 0, map[types.UID]bool{}
	waiting := sync.OnceValues(func() ([]corev1.Pod, error) { return s.waitingPods(ctx) })
	nodes := s.nodesByName()
	for _, pod := range asking {
		was, ok := s.state.rooms[pod.UID]
		asks := answers && isUnanswered(pod)
		switch {
		case !asks && (was.why == "" || time.Now().Before(was.next)):
			if ok && (was.why != "" || api.QuestionOf(pod) != "") {
				known[pod.UID] = was // what it was answered
			}
			continue
		case looked == roomAtOnce:
			if late[pod.UID] = asks; ok {
				known[pod.UID] = was
			}
			s.queue.Add(s.key)
			continue
		}
		why, requests, err := s.noRoomFor(ctx, target, pod, nodes()[rollout.NodeOf(pod)], waiting)
		if requests {
			looked++
		}
		now := nodeRoom{why: why, next: time.Now().Add(roomEvery)}
		if err != nil {
			if ctx.Err() == nil {
				s.log.Warn("whether other pods would take the room of the next one is not known", s.key.kind.Lower(), s.key.String(), "pod", pod.Name, "err", err)
			}
			now.why, now.unknown = was.why, err.Error()
		}
		known[pod.UID] = now
	}
	s.state.rooms = known
	for _, r := range known {
		if r.why != "" {
			s.queue.AddAfter(s.key, time.Until(r.next))
		}
	}
	return func(pod *corev1.Pod) bool { return late[pod.UID] }
}

// roomAskers returns the pods of asking for which room is looked for: none if admission refuses the next pods anyway, or an
// admin has the rollout go on whatever stands in its way. The next pod of a StatefulSet may run on another node.
func (s *scope) roomAskers(asking []*corev1.Pod, refused, hash string) []*corev1.Pod {
	if s.ds == nil || refused != "" || s.options.Continue == hash {
		return nil
	}
	return asking
}

// noRoomFor returns why there would be no room for the next pod on a node, as the informer has it; "" if there is, or nobody
// waits who could take it. requests is whether it had to ask for the node.
func (s *scope) noRoomFor(ctx context.Context, target api.Target, pod *corev1.Pod, node *corev1.Node, waiting func() ([]corev1.Pod, error)) (why string, requests bool, err error) {
	all, err := waiting()
	if err != nil || node == nil {
		return "", false, err
	}
	var others []corev1.Pod
	for i := range all {
		if placement.CanTake(node, &all[i]) {
			others = append(others, all[i])
		}
	}
	if len(others) == 0 {
		return "", false, nil
	}
	here, err := s.podsOf(ctx, fields.Set{"spec.nodeName": node.Name}, 0)
	if err != nil {
		return "", true, err
	}
	i := slices.IndexFunc(here.Items, func(p corev1.Pod) bool { return p.UID == pod.UID })
	if i < 0 {
		return "", true, nil // it is gone
	}
	ctx, cancel := context.WithTimeout(ctx, roomTimeout)
	defer cancel()
	list, err := s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, node.Name).String()})
	if err != nil || len(list.Items) == 0 {
		return "", true, err
	}
	return room.Obstacle(&list.Items[0], &here.Items[i], target, here.Items, others), true, nil
}

// waitingPods returns the pods that wait for a node.
func (s *scope) waitingPods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := s.podsOf(ctx, fields.Set{"spec.nodeName": "", "status.phase": string(corev1.PodPending)}, maxWaiting)
	switch {
	case err != nil:
		return nil, err
	case list.Continue != "":
		return nil, fmt.Errorf("more than %d pods of the cluster wait for a node", maxWaiting)
	}
	return list.Items, nil
}

// podsOf returns the pods of the cluster with these fields. most of 0 is all.
func (s *scope) podsOf(ctx context.Context, by fields.Set, most int64) (*corev1.PodList, error) {
	ctx, cancel := context.WithTimeout(ctx, roomTimeout)
	defer cancel()
	list, err := s.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: by.AsSelector().String(), Limit: most})
	if err != nil {
		return nil, fmt.Errorf("list the pods with %s: %w", by, err)
	}
	return list, nil
}

// isUnanswered reports whether the owner of a pod's node waits for an answer.
func isUnanswered(pod *corev1.Pod) bool {
	question := api.QuestionOf(pod)
	if question == "" {
		return false
	}
	target, _, err := api.TargetOf(pod)
	return err != nil || target.Answered != question
}

// orNoRoom adds to what obstacles returns what lookForRoom has found.
func (s *scope) orNoRoom(obstacles func(*corev1.Pod) string) func(*corev1.Pod) string {
	return func(pod *corev1.Pod) string { return cmp.Or(obstacles(pod), s.state.rooms[pod.UID].why) }
}

// answerTo returns what the controller answers the owner of a pod beside Target.Blocked: whether it does, and what it does not know.
func (s *scope) answerTo(answers bool, postponed func(*corev1.Pod) bool) func(*corev1.Pod) (bool, string) {
	unknown := s.unknown()
	return func(pod *corev1.Pod) (bool, string) {
		return answers && !postponed(pod), api.OneLine(cmp.Or(unknown, s.state.rooms[pod.UID].unknown), maxUnknown)
	}
}

// maxUnknown bounds Target.Unknown, in bytes.
const maxUnknown = 300
