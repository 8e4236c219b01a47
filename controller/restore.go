package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/successor"
	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	// kickAfter is how long Kubernetes has to make a pod by itself.
	kickAfter = 2 * time.Second
	// askEvery is how often the apiserver is asked whether it would let in what is missing, so that pods are back
	// within seconds of the cause being mended; askSeldom is from patience on: nobody is mending it.
	askEvery, askSeldom = 3 * time.Second, 30 * time.Second
	patience            = 10 * time.Minute
	// askAtOnce is for how many of the missing pods it is asked: admission may look at the node's name.
	askAtOnce = 5
	// kickEvery is how often a controller is made to try again that could have made a pod and has not, the first
	// fastKicks times: the DaemonSet controller begins with a node of its choice, and gives up for now if that one's pod
	// is refused. From then on each wait is twice as long as the one before, up to askSeldom.
	kickEvery = time.Second
	fastKicks = 20
)

// lack is a pod that Kubernetes has not made: on a node, or, of a StatefulSet, with a name.
type lack struct {
	node, pod string
	since     time.Time
}

// restoreState is what is remembered of a workload that lacks pods.
type restoreState struct {
	next  time.Time // when the apiserver is asked again
	first int       // which of the pods it is asked for first then
	kicks int       // since it last refused all that it was asked for
	why   string    // it refuses them, or ""
}

// lackingOn returns the pods of a DaemonSet that Kubernetes has not made.
func lackingOn(missing []rollout.Missing) []lack {
	var out []lack
	for i := range missing {
		if missing[i].Pod == nil {
			out = append(out, lack{node: missing[i].Node, since: missing[i].Since})
		}
	}
	return out
}

// restore has Kubernetes make the pods that are missing. The controllers of DaemonSets and StatefulSets wait up to 1,000
// s after failures, and that of DaemonSets has one wait for all nodes: a pod that admission refuses keeps those of other
// nodes from coming, and itself when it would be let in. Both try again at once when their object changes.
func (s *scope) restore(ctx context.Context, revision *appsv1.ControllerRevision, lacking []lack) error {
	t, now := &s.state.restore, time.Now()
	lacking = slices.DeleteFunc(slices.Clone(lacking), func(l lack) bool {
		if wait := kickAfter - now.Sub(l.since); wait > 0 {
			s.queue.AddAfter(s.key, wait)
			return true
		}
		return false
	})
	if len(lacking) == 0 {
		*t = restoreState{}
		return nil
	}
	defer func() { s.requeueAt(t.next, now) }()
	if now.Before(t.next) {
		return nil
	}
	refused, asked := s.askForLacking(ctx, revision, lacking)
	if !asked {
		t.next = now.Add(askEvery)
		return nil
	}
	if refused != t.why {
		t.why = refused
		s.queue.Add(s.key) // for the conditions and the annotations of Nodes
		if refused != "" {
			s.log.Warn("pods of a workload are missing, and the apiserver would refuse them", s.key.kind.Lower(), s.key.String(), "pods", len(lacking), "why", refused)
		}
	}
	if refused != "" {
		t.kicks, t.next = 0, now.Add(askAgain(now.Sub(lacking[0].since)))
		return nil
	}
	if t.kicks++; t.kicks == 1 {
		s.log.Info("pods of a workload are missing; its controller in Kubernetes is made to try again until they are there", s.key.kind.Lower(), s.key.String(), "pods", len(lacking))
	}
	t.next = now.Add(min(kickEvery<<min(max(0, t.kicks-fastKicks), 10), askSeldom))
	return s.kick(ctx, now)
}

// askAgain is when the apiserver is asked again about what a node has waited for that long.
func askAgain(waited time.Duration) time.Duration {
	if waited > patience {
		return askSeldom
	}
	return askEvery
}

// askForLacking returns why the apiserver refuses all of the missing pods that it is asked for now; "" if it would let
// one in, or the answer is Unknown. asked is false if it may be asked for none now.
func (s *scope) askForLacking(ctx context.Context, revision *appsv1.ControllerRevision, lacking []lack) (why string, asked bool) {
	t := &s.state.restore
	first := t.first
	for i := range min(askAtOnce, len(lacking)) {
		if !s.successors.MayAsk(s.key.Namespace) {
			return why, asked
		}
		t.first, asked = (first+i+1)%len(lacking), true
		l := lacking[(first+i)%len(lacking)]
		old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: l.pod}, Spec: corev1.PodSpec{NodeName: l.node}}
		pod, err := successor.PodOf(s.object, revision, old)
		if err != nil {
			return "", true
		}
		verdict := s.successors.Ask(ctx, pod, old)
		if verdict.Result != successor.Refused {
			return "", true
		}
		why = "the apiserver refuses it: " + verdict.Why
	}
	return why, asked
}

// kick changes the workload, so that its controller tries again.
func (s *scope) kick(ctx context.Context, now time.Time) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": s.object.GetUID(), "annotations": map[string]string{api.RetriedAnnotation: now.UTC().Format(time.RFC3339Nano)},
	}})
	if err != nil {
		return err
	}
	if _, err := s.patchStatus(ctx, types.MergePatchType, patch); err != nil {
		return fmt.Errorf("have the controller of %s %s try again: %w", s.key.kind.Lower(), s.key, err)
	}
	return nil
}

// annotateNodes has the Nodes annotated that have lacked their pod of a DaemonSet for LackGrace, and returns them.
func (s *scope) annotateNodes(missing []rollout.Missing, now time.Time) (late []rollout.MissingPod) {
	by := map[string]api.MissingWorkload{}
	for i := range missing {
		m := &missing[i]
		if !m.Late(now) {
			continue
		}
		why := s.state.restore.why
		switch {
		case m.Pod != nil:
			why = rollout.Unplaced(m.Pod)
		case why == "":
			why = "Kubernetes has not made the pod yet"
		}
		by[m.Node] = api.MissingWorkload{
			Kind: string(s.key.kind), Namespace: s.key.Namespace, Name: s.key.Name, Since: m.Since.UTC().Truncate(time.Second), Why: why,
		}
		late = append(late, rollout.MissingPod{Node: m.Node, Since: by[m.Node].Since, Why: why})
	}
	s.missing.Set(s.object.GetUID(), by)
	return late
}
