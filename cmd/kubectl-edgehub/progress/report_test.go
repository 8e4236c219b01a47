package progress

import (
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

func TestWhereARolloutStands(t *testing.T) {
	annotated := func(key, value string) *world {
		return newWorld(advanced, map[string]string{key: value}).fleet("a", 2, newRevision)
	}
	halfDone := func(annotations map[string]string) *world {
		return newWorld(advanced, annotations).fleet("a", 2, newRevision).fleet("b", 2, oldRevision)
	}
	tests := map[string]struct {
		world *world
		want  Phase
		code  ExitCode
		says  string // in message or advice
	}{
		"all nodes updated":                  {newWorld(advanced, nil).fleet("a", 3, newRevision), Complete, ExitDone, "3 of 3 nodes updated"},
		"no node at all":                     {newWorld(advanced, nil), Complete, ExitDone, "no node should run this daemon"},
		"old pods that wait for their turn":  {halfDone(nil), Updating, ExitUnderWay, "2 of 4 nodes updated"},
		"a broken new pod":                   {mixed(), Updating, ExitUnderWay, "ImagePullBackOff"},
		"only a NotReady node is left":       {withNotReady(newWorld(advanced, nil).fleet("a", 2, newRevision)), Waiting, ExitUnderWay, "follow by themselves"},
		"NotReady, and others held":          {withNotReady(halfDone(map[string]string{rollout.PartitionAnnotation: "3"})), Waiting, ExitUnderWay, "that the annotations let go is updated"},
		"paused":                             {halfDone(map[string]string{rollout.PausedAnnotation: "true"}), Paused, ExitHeldUp, "kubectl edgehub resume ds/web -n shop"},
		"paused when all was done":           {annotated(rollout.PausedAnnotation, "true"), Complete, ExitDone, ""},
		"held by the partition":              {halfDone(map[string]string{rollout.PartitionAnnotation: "2"}), Held, ExitDone, rollout.PartitionAnnotation},
		"held by the node selector":          {halfDone(map[string]string{rollout.NodeSelectorAnnotation: "zone=test"}), Held, ExitDone, rollout.NodeSelectorAnnotation},
		"a wrong option":                     {annotated(rollout.MaxUnavailableAnnotation, "abc"), Invalid, ExitHeldUp, `max-unavailable is "abc"`},
		"a wrong strategy":                   {newWorld("advanced", nil), Invalid, ExitHeldUp, `is "advanced"`},
		"a revision that is not there yet":   {notObserved(), Updating, ExitUnderWay, "its revision is not known yet"},
		"halted, in the controller's words":  {haltedWorld(nil), Halted, ExitHeldUp, "n1 and n2 are lost"},
		"halted, and told to go on":          {haltedWorld(map[string]string{rollout.ContinueAnnotation: newRevision}), Updating, ExitUnderWay, ""},
		"halted for another revision before": {haltedWorld(map[string]string{rollout.ContinueAnnotation: oldRevision}), Halted, ExitHeldUp, "n1 and n2 are lost"},
		"pods that may not be deleted":       {refusedWorld(newRevision), Refused, ExitHeldUp, "not today"},
		"refused for the revision before":    {refusedWorld(oldRevision), Updating, ExitUnderWay, ""},
		"held by a taint":                    {withTainted(newWorld(advanced, nil).fleet("a", 2, newRevision)), Complete, ExitDone, "2 of 3 nodes updated, 1 pod held by placement (node z has the taint line=3:NoSchedule"},
		"taint and partition hold":           {withTainted(halfDone(map[string]string{rollout.PartitionAnnotation: "2"})), Held, ExitDone, "2 held by annotation " + rollout.PartitionAnnotation + ", 1 pod held by placement (node z has"},
		"OTA, held by a taint":               {withTainted(newWorld("OTA", nil).fleet("a", 2, newRevision)), Complete, ExitDone, "2 of 3 nodes updated, 1 pod held by placement (node z has the taint line=3:NoSchedule"},
		"OTA, all upgraded":                  {newWorld("OTA", nil).fleet("a", 2, newRevision), Complete, ExitDone, "2 of 2 nodes updated"},
		"OTA, some not":                      {newWorld("ota", nil).fleet("a", 1, newRevision).fleet("b", 2, oldRevision), Waiting, ExitUnderWay, "2 waiting for their owner"},
		"OTA, a pod that is starting":        {withNoPod(newWorld("OTA", nil).fleet("a", 1, newRevision)), Updating, ExitUnderWay, "1 unavailable"},
		"OTA, an old pod on no node":         {withUnscheduled(newWorld("OTA", nil).fleet("a", 2, newRevision)), Waiting, ExitUnderWay, "1 pods are not scheduled"},
		"OTA does not read the options":      {newWorld("OTA", map[string]string{rollout.MaxUnavailableAnnotation: "abc"}).fleet("a", 1, newRevision), Complete, ExitDone, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := tt.world.evaluate(t)
			if r.State != tt.want || r.State.ExitCode() != tt.code {
				t.Errorf("got %s with exit code %d, want %s with %d; message: %s", r.State, r.State.ExitCode(), tt.want, tt.code, r.Message)
			}
			if !strings.Contains(r.Message+" "+r.Advice, tt.says) {
				t.Errorf("got %q and %q, want %q in one of them", r.Message, r.Advice, tt.says)
			}
		})
	}
}

func withNotReady(w *world) *world {
	w.node("z", corev1.ConditionUnknown)
	w.pod("z", oldRevision, corev1.ConditionFalse)
	return w
}

// withTainted adds a node with an old pod that would get no new one.
func withTainted(w *world) *world {
	w.node("z", corev1.ConditionTrue).Spec.Taints = []corev1.Taint{{Key: "line", Value: "3", Effect: corev1.TaintEffectNoSchedule}}
	w.pod("z", oldRevision, corev1.ConditionTrue)
	return w
}

func withNoPod(w *world) *world {
	w.node("z", corev1.ConditionTrue)
	return w
}

// refusedWorld returns a world in which the controller reports that deletions of pods are
// refused, for a revision.
func refusedWorld(revision string) *world {
	w := newWorld(advanced, nil).fleet("a", 2, newRevision).fleet("b", 2, oldRevision)
	w.daemonSet.Status.Conditions = append(w.daemonSet.Status.Conditions, appsv1.DaemonSetCondition{
		Type: rollout.ProgressingCondition, Status: corev1.ConditionFalse, Reason: rollout.ReasonRefused,
		Message: "controllerrevision " + revision + ": 2 of 4 nodes updated, 2 keep their pods: not today",
	})
	return w
}

// withUnscheduled adds an old pod that the scheduler finds no room for.
func withUnscheduled(w *world) *world {
	w.fleet("z", 1, oldRevision)
	pod := w.Pods[len(w.Pods)-1]
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{pod.Spec.NodeName}},
			},
		}}},
	}}
	pod.Spec.NodeName, pod.Status = "", corev1.PodStatus{Phase: corev1.PodPending}
	return w
}

func notObserved() *world {
	w := newWorld(advanced, nil).fleet("a", 1, oldRevision)
	w.daemonSet.Generation++
	return w
}

// haltedWorld has three nodes with the new revision, two of them lost.
func haltedWorld(annotations map[string]string) *world {
	w := newWorld(advanced, annotations).fleet("a", 2, oldRevision).fleet("n", 3, newRevision)
	for _, n := range w.Nodes[2:4] {
		n.Status.Conditions[0].Status = corev1.ConditionUnknown
	}
	w.said(rollout.HaltedCondition, corev1.ConditionTrue, "n1 and n2 are lost")
	return w
}

// Nobody has deleted yet what the controller would delete next.
func TestWhatIsNextIsNotGoneYet(t *testing.T) {
	tests := map[string]struct {
		pod    func(*corev1.Pod)
		want   rollout.State
		reason string
		absent int // nodes that have no available pod
	}{
		"an available pod":        {func(*corev1.Pod) {}, rollout.Pending, "it is next", 0},
		"a pod that is not Ready": {broken, rollout.Unavailable, "container web: ImagePullBackOff", 1},
		"a pod that was not Ready for long": {func(p *corev1.Pod) {
			p.Status.Conditions[0].LastTransitionTime.Time = start.Add(-time.Second)
		}, rollout.Unavailable, "Ready for less than minReadySeconds, 1m0s", 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(advanced, nil).fleet("a", 1, newRevision).fleet("b", 1, oldRevision)
			w.daemonSet.Spec.MinReadySeconds = 60
			tt.pod(w.Pods[1])
			r := w.evaluate(t)
			want := Node{Node: "b1", State: tt.want, Reason: tt.reason, Pod: "web-b1", Revision: oldRevision}
			got := r.Nodes[1]
			want.Containers, want.ReadyContainers, want.PodStatus = 1, got.ReadyContainers, got.PodStatus // others test them
			if got != want || r.Counts[tt.want] != 1 || r.Limits.UnavailableNodes != tt.absent {
				t.Errorf("got %+v, counts %v, %d unavailable; want %+v", got, r.Counts, r.Limits.UnavailableNodes, want)
			}
		})
	}
}

// The controller has seen when nodes went NotReady, and this program has not.
func TestTheControllersWordOnTheBreakerCounts(t *testing.T) {
	w := haltedWorld(nil)
	for i := range w.Pods { // young enough to be in doubt
		w.Pods[i].CreationTimestamp.Time = start.Add(-rollout.BreakerWindow)
	}
	for i := range w.Nodes {
		w.Nodes[i].Status.Conditions[0].LastTransitionTime.Time = start
	}
	w.daemonSet.Status.Conditions = nil
	if r := w.evaluate(t); r.State != Halted {
		t.Errorf("got %s, want halted while nobody knows better", r.State)
	}
	w.said(rollout.HaltedCondition, corev1.ConditionFalse, "the nodes that were updated stay Ready")
	if r := w.evaluate(t); r.State == Halted {
		t.Errorf("got %s, though the controller says that it is not: %s", r.State, r.Advice)
	}
}

func TestOneThatNeverOptedIn(t *testing.T) {
	w := newWorld(advanced, nil)
	w.daemonSet.Annotations = nil
	_, err := Evaluate(w.Objects, start)
	var notOptedIn NotOptedIn
	if !errors.As(err, &notOptedIn) || !strings.Contains(err.Error(), "shop/web") {
		t.Errorf("got %v, want an error that says that shop/web did not opt in", err)
	}
}

func TestOTASaysHowFarOwnersAre(t *testing.T) {
	w := newWorld(daemonset.OTA.String(), nil).fleet("a", 4, oldRevision)
	for i, pod := range w.Pods {
		mark := func(kind corev1.PodConditionType, status corev1.ConditionStatus, revision, reason string) {
			pod.Status.Conditions = append(pod.Status.Conditions,
				corev1.PodCondition{Type: kind, Status: status, Message: upgrade.Message(revision), Reason: reason})
		}
		switch i {
		case 0:
			mark(upgrade.NeedCondition, corev1.ConditionTrue, newRevision, "")
			mark(upgrade.ImageCondition, corev1.ConditionTrue, newRevision, "")
		case 1:
			mark(upgrade.NeedCondition, corev1.ConditionTrue, newRevision, "")
			mark(upgrade.ImageCondition, corev1.ConditionFalse, newRevision, upgrade.ReasonPulling)
		case 2: // pulled for an earlier revision
			mark(upgrade.NeedCondition, corev1.ConditionTrue, newRevision, "")
			mark(upgrade.ImageCondition, corev1.ConditionTrue, "other", "")
		case 3: // not marked yet
			mark(upgrade.NeedCondition, corev1.ConditionFalse, oldRevision, "")
		}
	}
	w.Nodes[3].Status.Conditions[0].Status = corev1.ConditionUnknown
	r := w.evaluate(t)
	for i, want := range []string{"its images are there", "its images are being pulled", "", "node is not Ready"} {
		if n := r.Nodes[i]; n.State != rollout.WaitingForOwner || n.Reason != want {
			t.Errorf("node %s is %s (%q), want %s (%q)", n.Node, n.State, n.Reason, rollout.WaitingForOwner, want)
		}
	}
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "not yet told 1 pods") || r.Spoke {
		t.Errorf("got warnings %q, want one about the pod that has not been told", r.Warnings)
	}
}

func TestAWarningAndTheAdviceAgree(t *testing.T) {
	r := newWorld(advanced, nil).fleet("a", 2, oldRevision).evaluate(t)
	r.Warn("the controller seems not to run")
	if r.Advice != "it goes on when the controller runs" {
		t.Errorf("the advice is %q beside a warning that nothing will happen", r.Advice)
	}
}

func TestReadyOnly(t *testing.T) {
	tests := map[string]struct {
		world *world
		want  bool
	}{
		"one node is NotReady, the others are updated": {withNotReady(newWorld(advanced, nil).fleet("a", 2, newRevision)), true},
		"one node is NotReady, another one pending":    {withNotReady(newWorld(advanced, nil).fleet("a", 2, oldRevision)), false},
		"OTA, an owner has not upgraded":               {newWorld("OTA", nil).fleet("a", 2, oldRevision), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.world.evaluate(t).OnlyNotReadyLeft(); got != tt.want {
				t.Errorf("only NotReady nodes left: got %t, want %t", got, tt.want)
			}
		})
	}
}
