package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

const never = corev1.ConditionUnknown // of a node that is cut off

func TestWhichPodsAreDeletedFirst(t *testing.T) {
	tests := map[string]struct {
		nodes       int
		annotations map[string]string
		arrange     func(*world)
		want        []string
	}{
		"one of ten by default, the one that has been Ready for longest": {nodes: 10, want: []string{"n1"}},
		"a tenth is rounded up": {nodes: 11, want: []string{"n1", "n2"}},
		"a number": {
			nodes: 10, annotations: map[string]string{api.MaxUnavailableAnnotation: "3"}, want: []string{"n1", "n2", "n3"},
		},
		"a maximum above the number of nodes is all of them": {
			nodes: 2, annotations: map[string]string{api.MaxUnavailableAnnotation: "5"}, want: []string{"n1", "n2"},
		},
		"three old pods serve nobody: the three go, and no fourth": {
			nodes: 10, annotations: map[string]string{api.MaxUnavailableAnnotation: "1"},
			arrange: func(w *world) {
				for _, n := range []string{"n4", "n6", "n8"} {
					w.ready(w.on(n).UID, false)
				}
			},
			want: []string{"n4", "n6", "n8"},
		},
		"three nodes without a pod use up a maximum of three": {
			nodes: 10, annotations: map[string]string{api.MaxUnavailableAnnotation: "3"},
			arrange: func(w *world) {
				for _, n := range []string{"n1", "n2", "n3"} {
					w.remove(n)
				}
			},
		},
		"half of two Ready nodes is one, whatever the eight others are": {
			nodes: 10, annotations: map[string]string{api.MaxUnavailableAnnotation: "50%"},
			arrange: func(w *world) {
				for i := 3; i <= 10; i++ {
					w.turn(fmt.Sprintf("n%d", i), never)
				}
			},
			want: []string{"n1"},
		},
		"a node that is not Ready and has no pod counts for nothing": {
			nodes: 3, annotations: map[string]string{api.MaxUnavailableAnnotation: "1"},
			arrange: func(w *world) { w.turn("n1", never); w.remove("n1") },
			want:    []string{"n2"},
		},
		"a missing Node object skips that node alone": {
			nodes: 3, annotations: map[string]string{api.MaxUnavailableAnnotation: "3"},
			arrange: func(w *world) { delete(w.nodes, "n2") },
			want:    []string{"n1", "n3"},
		},
		"a terminating pod counts": {
			nodes: 3, annotations: map[string]string{api.MaxUnavailableAnnotation: "1"},
			arrange: func(w *world) { w.on("n3").DeletionTimestamp = &metav1.Time{Time: w.now} },
		},
		"a terminating pod counts though a new one is there": {
			nodes: 3, annotations: map[string]string{api.MaxUnavailableAnnotation: "1"},
			arrange: func(w *world) {
				w.on("n3").DeletionTimestamp = &metav1.Time{Time: w.now}
				w.addPod("n3", target, true)
			},
		},
		"a pod that has ended and is kept by a finalizer does not count": {
			nodes: 3, annotations: map[string]string{api.MaxUnavailableAnnotation: "1"},
			arrange: func(w *world) {
				pod := w.on("n3")
				pod.DeletionTimestamp, pod.Status.Phase = &metav1.Time{Time: w.now}, corev1.PodFailed
				w.addPod("n3", target, true)
			},
			want: []string{"n1"},
		},
		"two pods on a node count as one, and neither is touched": {
			nodes: 3, annotations: map[string]string{api.MaxUnavailableAnnotation: "1"},
			arrange: func(w *world) { w.addPod("n3", target, true) },
		},
		"a new pod that is not Ready counts": {
			nodes: 3, annotations: map[string]string{api.MaxUnavailableAnnotation: "1"},
			arrange: func(w *world) { w.upgrade("n3", false) },
		},
		"a pod at the target is never touched": {
			nodes: 3, annotations: map[string]string{api.MaxUnavailableAnnotation: "3"},
			arrange: func(w *world) { w.upgrade("n1", true); w.upgrade("n2", false) },
			want:    []string{"n3"},
		},
		"a node that should not run the daemon is left alone and does not count": {
			nodes: 3, annotations: map[string]string{api.MaxUnavailableAnnotation: "1"},
			arrange: func(w *world) {
				w.ds.Spec.Template.Spec.NodeSelector = map[string]string{"daemon": "yes"}
				w.nodes["n2"].Labels["daemon"] = "yes"
				w.ready(w.on("n1").UID, false)
			},
			want: []string{"n2"},
		},
		"pause stops everything, also what serves nobody": {
			nodes: 3, annotations: map[string]string{api.PausedAnnotation: "true"},
			arrange: func(w *world) { w.ready(w.on("n2").UID, false) },
		},
		"a partition keeps that many pods": {
			nodes: 5, annotations: map[string]string{api.MaxUnavailableAnnotation: "5", api.PartitionAnnotation: "3"}, want: []string{"n1", "n2"},
		},
		"a partition in percent is of all nodes, and rounded up": {
			nodes: 5, annotations: map[string]string{api.MaxUnavailableAnnotation: "100%", api.PartitionAnnotation: "50%"}, want: []string{"n1", "n2"},
		},
		"a partition counts the old pods of nodes that are not Ready": {
			nodes: 5, annotations: map[string]string{api.MaxUnavailableAnnotation: "5", api.PartitionAnnotation: "3"},
			arrange: func(w *world) { w.turn("n1", never); w.turn("n2", never) },
			want:    []string{"n3", "n4"},
		},
		"a partition of all keeps all": {
			nodes: 5, annotations: map[string]string{api.MaxUnavailableAnnotation: "5", api.PartitionAnnotation: "100%"},
		},
		"within a partition, what serves nobody goes first": {
			nodes: 5, annotations: map[string]string{api.MaxUnavailableAnnotation: "1", api.PartitionAnnotation: "4"},
			arrange: func(w *world) { w.ready(w.on("n4").UID, false) },
			want:    []string{"n4"},
		},
		"a canary": {
			nodes: 5, annotations: map[string]string{api.MaxUnavailableAnnotation: "5", api.NodeSelectorAnnotation: "name in (n3,n5)"},
			want: []string{"n3", "n5"},
		},
		"nodes outside a canary still count": {
			nodes: 5, annotations: map[string]string{api.MaxUnavailableAnnotation: "1", api.NodeSelectorAnnotation: "name=n3"},
			arrange: func(w *world) { w.remove("n5") },
		},
		"a node that Kubernetes has not untainted yet would get no pod": {
			nodes: 2, annotations: map[string]string{api.MaxUnavailableAnnotation: "2"},
			arrange: func(w *world) {
				w.nodes["n1"].Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
			},
			want: []string{"n2"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.nodes)
			for k, v := range tt.annotations {
				w.ds.Annotations[k] = v
			}
			if tt.arrange != nil {
				tt.arrange(w)
			}
			p := w.expect(tt.want...)
			w.expect() // the same again asks for nothing more
			for _, d := range p.Delete {
				if ready := d.Pod.Status.Conditions[0].Status == corev1.ConditionTrue; d.NotReady == ready {
					t.Errorf("pod %s is Ready: %t, notReady: %t", d.Pod.Name, ready, d.NotReady)
				}
			}
		})
	}
}

func TestAtMostABurstIsDeletedAtOnce(t *testing.T) {
	w := newWorld(t, Burst+20)
	w.ds.Annotations[api.MaxUnavailableAnnotation] = "100%"
	p := w.plan()
	if len(p.Delete) != Burst || !p.Wake.Equal(w.now) {
		t.Fatalf("%d deletions, and the next call at %v; want %d, and at once", len(p.Delete), p.Wake, Burst)
	}
	if p = w.plan(); len(p.Delete) != 20 {
		t.Fatalf("then %d deletions, want 20", len(p.Delete))
	}
}

func TestTheNextStepFollowsWhenAPodIsAvailable(t *testing.T) {
	w := newWorld(t, 3)
	for _, node := range []string{"n1", "n2", "n3"} {
		w.expect(node)
		w.expect() // the watch has not shown it
		w.remove(node)
		w.expect()
		pod := w.addPod(node, target, false)
		w.expect()
		w.ready(pod.UID, true)
	}
	p := w.expect()
	if !p.Complete() || !p.Wake.IsZero() {
		t.Errorf("%s, wake at %v", p.Summary(), p.Wake)
	}
}

func TestMinReadySecondsAreCountedByTheControllersClock(t *testing.T) {
	for name, clock := range map[string]time.Time{"long ago": {}, "far in the future": start.AddDate(50, 0, 0)} {
		w := newWorld(t, 2)
		w.ds.Spec.MinReadySeconds = 30
		w.expect("n1")
		w.remove("n1")
		pod := w.addPod("n1", target, true)
		pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(clock)
		p := w.expect()
		if want := w.now.Add(30 * time.Second); !p.Wake.Equal(want) {
			t.Errorf("a node's clock that is %s: wake at %v, want %v", name, p.Wake, want)
		}
		w.pass(29 * time.Second)
		w.expect()
		w.pass(time.Second)
		w.expect("n2")
	}
}

func TestAPodThatWasNotReadyInBetweenCountsFromThenOn(t *testing.T) {
	w := newWorld(t, 2)
	w.ds.Spec.MinReadySeconds = 30
	w.expect("n1")
	w.upgrade("n1", true)
	w.expect()
	w.pass(20 * time.Second)
	// The watch broke, and only the time of the last transition shows it.
	w.ready(w.on("n1").UID, true)
	w.expect()
	w.pass(20 * time.Second)
	w.expect()
	w.pass(10 * time.Second)
	w.expect("n2")
}

func TestOldPodsThatAreReadyForTooShortCountOnceOnly(t *testing.T) {
	w := newWorld(t, 4)
	w.ds.Spec.MinReadySeconds = 600
	w.expect("n1")
	w.upgrade("n1", true)
	w.expect()
	w.pass(time.Minute)
	// Its revision is already an old one again: deleting it adds nothing to the count.
	w.target = "newer"
	w.expect("n1")
}

func TestASecondTemplateIsNotBlockedByTheFirstOnesBrokenPods(t *testing.T) {
	w := newWorld(t, 5)
	w.ds.Annotations[api.MaxUnavailableAnnotation] = "2"
	w.expect("n1", "n2")
	w.upgrade("n1", false)
	w.upgrade("n2", false)
	w.pass(time.Hour)
	w.expect()
	w.target = "newer"
	w.expect("n1", "n2")
	w.upgrade("n1", true)
	w.expect("n3")
}

func TestARollbackLeavesPodsThatAreAtTheTargetAlone(t *testing.T) {
	w := newWorld(t, 4)
	w.expect("n1")
	w.upgrade("n1", true)
	w.expect("n2")
	w.upgrade("n2", false)
	w.target = oldRevision
	p := w.expect("n2") // which counts, so n1 waits
	if got := state(t, &p, "n3"); got.State != Updated {
		t.Errorf("n3 is %v", got)
	}
}

func TestANodeThatBecomesReadyIsUpgradedThoughItsPodStayedReady(t *testing.T) {
	w := newWorld(t, 2)
	w.turn("n2", never)
	w.expect("n1")
	w.upgrade("n1", true)
	p := w.expect()
	if got := state(t, &p, "n2"); got.State != WaitingNotReady || p.Complete() || !p.Wake.IsZero() {
		t.Errorf("%v, wake at %v", got, p.Wake)
	}
	w.turn("n2", corev1.ConditionTrue)
	p = w.expect()
	if want := w.now.Add(NodeSettle); !p.Wake.Equal(want) {
		t.Errorf("wake at %v, want %v", p.Wake, want)
	}
	w.pass(NodeSettle)
	w.expect("n2")
}

func TestAFlappingNodeIsLeftAloneAndDelaysNothing(t *testing.T) {
	w := newWorld(t, 4)
	for i := range 20 {
		w.turn("n1", never)
		w.plan()
		w.pass(3 * time.Second)
		w.turn("n1", corev1.ConditionTrue)
		p := w.plan()
		w.pass(4 * time.Second)
		if slices.Contains(deletions(&p), "n1") {
			t.Fatal("a pod was deleted while its node flaps")
		}
		if i < 3 {
			w.upgrade(fmt.Sprintf("n%d", i+2), true)
		}
	}
	p := w.expect()
	if p.Counts[Updated] != 3 {
		t.Errorf("%s", p.Summary())
	}
	w.pass(NodeSettle)
	w.expect("n1")
}

func TestAFlappingNodeTakesNoPlaceOfAPartition(t *testing.T) {
	w := newWorld(t, 3)
	w.ds.Annotations[api.PartitionAnnotation] = "2"
	w.turn("n1", never)
	w.turn("n1", corev1.ConditionTrue)
	w.pass(time.Second)
	w.expect("n2")
}

func TestAfterARestartTheMaximumHolds(t *testing.T) {
	w := newWorld(t, 10)
	w.ds.Spec.MinReadySeconds = 60
	w.expect("n1")
	w.upgrade("n1", true)
	w.expect()

	w.restart()
	w.expect()
	w.pass(NodeSettle)
	p := w.expect()
	if p.Unavailable != 10 {
		t.Errorf("unavailable %d, want 10: nothing is known for long enough", p.Unavailable)
	}
	w.pass(49 * time.Second)
	w.expect()
	w.pass(time.Second)
	w.expect("n2")
}

func TestAfterARestartADeletionThatIsListedCounts(t *testing.T) {
	w := newWorld(t, 10)
	w.expect("n1")
	w.on("n1").DeletionTimestamp = &metav1.Time{Time: w.now}
	w.restart()
	w.expect()
	w.pass(time.Hour)
	w.expect()
}

func TestADeletionThatThePodsDoNotShowYetCounts(t *testing.T) {
	w := newWorld(t, 3)
	p := w.expect("n1")
	if p.Unavailable != 1 || state(t, &p, "n1").State != Unavailable {
		t.Errorf("%d unavailable, n1 %v", p.Unavailable, state(t, &p, "n1"))
	}
	p = w.expect()
	if got := state(t, &p, "n1"); got.State != Unavailable || got.Reason != "a pod is terminating" {
		t.Errorf("n1 %v", got)
	}
}

func TestStatesHaveReasons(t *testing.T) {
	w := newWorld(t, 8)
	w.ds.Annotations[api.NodeSelectorAnnotation] = "name!=n8"
	w.upgrade("n1", true)
	w.upgrade("n2", false)
	pod := w.on("n2").DeepCopy()
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"},
	}}}
	w.pods[pod.UID] = pod
	w.turn("n3", never)
	w.remove("n4")
	w.upgrade("n5", true)
	w.turn("n5", never)
	w.upgrade("n6", false)
	w.on("n6").Status.Phase, w.on("n6").Status.Reason = corev1.PodFailed, "Evicted"
	p := w.expect()
	for node, want := range map[string]NodeStatus{
		"n1": {State: Updated, Revision: target},
		"n2": {State: Unavailable, Reason: "container app: ImagePullBackOff", Revision: target},
		"n3": {State: WaitingNotReady, Reason: "node is not Ready", Revision: oldRevision},
		"n4": {State: Unavailable, Reason: "no pod"},
		"n5": {State: Updated, Revision: target},
		"n6": {State: Unavailable, Reason: "pod Failed: Evicted", Revision: target},
		"n7": {State: Pending, Revision: oldRevision},
		"n8": {State: HeldBySelector, Revision: oldRevision},
	} {
		got := state(t, &p, node)
		if got.State != want.State || got.Reason != want.Reason || got.Revision != want.Revision {
			t.Errorf("%s: got %v, want %v", node, got, want)
		}
	}
	sum := 0
	for _, s := range States() {
		sum += p.Counts[s]
	}
	if sum != len(p.Nodes) || p.Ready != 6 || p.Unavailable != 3 {
		t.Errorf("counts %v of %d nodes, %d Ready, %d unavailable", p.Counts, len(p.Nodes), p.Ready, p.Unavailable)
	}
}

// A node writes what its pods wait for, of any length.
func TestTextsOfNodesAreTruncated(t *testing.T) {
	w := newWorld(t, 3)
	long := strings.Repeat("x", 1<<20)
	for _, n := range []string{"n1", "n2", "n3"} {
		w.upgrade(n, false)
	}
	w.on("n1").Status.ContainerStatuses = []corev1.ContainerStatus{{Name: long, State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: long},
	}}}
	w.on("n2").Status.Phase, w.on("n2").Status.Reason = corev1.PodFailed, long
	p := w.plan()
	if got := p.Summary(); len(got) > 1024 {
		t.Errorf("the summary has %d bytes", len(got))
	}
	if got := imageWaitReason(&corev1.PodCondition{Status: corev1.ConditionFalse, Reason: long}); len(got) > 200 {
		t.Errorf("the trouble with its images has %d bytes", len(got))
	}
}

func TestTrustingObservationsUseTheTimesOfConditions(t *testing.T) {
	w := newWorld(t, 2)
	w.ds.Spec.MinReadySeconds = 60
	w.upgrade("n1", true)
	w.pass(61 * time.Second)
	w.observed = NewTrustingObservations()
	in := w.input()
	p := NewPlan(in)
	if p.Counts[Updated] != 1 || p.Unavailable > 1 {
		t.Errorf("%s", p.Summary())
	}
}

func TestADaemonSetWithoutNodesIsComplete(t *testing.T) {
	w := newWorld(t, 0)
	p := w.expect()
	if !p.Complete() {
		t.Error("it is not")
	}
}

func TestNewPlanChangesNoInput(t *testing.T) {
	w := newWorld(t, 3)
	in := w.input()
	ds, node, pod := in.DaemonSet.DeepCopy(), in.Nodes[0].DeepCopy(), in.Pods[0].DeepCopy()
	NewPlan(in)
	for _, pair := range [][2]fmt.Stringer{{ds, in.DaemonSet}, {node, in.Nodes[0]}, {pod, in.Pods[0]}} {
		if pair[0].String() != pair[1].String() {
			t.Errorf("changed: %v", pair[1])
		}
	}
}

// Kubernetes lets a pod run on where a taint keeps the next one away. It is left alone, and the
// rollout is complete without it.
func TestANodeThatWouldGetNoPodKeepsTheOldOne(t *testing.T) {
	w := newWorld(t, 2)
	node := w.nodes["n1"].DeepCopy()
	node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "line3", Effect: corev1.TaintEffectNoSchedule}}
	w.nodes["n1"] = node
	w.expect("n2")
	w.upgrade("n2", true)
	w.pass(time.Hour)
	p := w.expect()
	got := state(t, &p, "n1")
	if got.State != HeldByPlacement || !strings.Contains(got.Reason, "dedicated=line3:NoSchedule") || got.Pod == "" {
		t.Errorf("got %+v", got)
	}
	message := "controllerrevision " + p.Revision + ": complete, 1 pod held by placement (node n1 has the taint dedicated=line3:NoSchedule, which the new version does not tolerate)"
	for i, want := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse} {
		if c := Conditions(&p)[i]; c.Status != want || c.Reason != ReasonHeldByPlacement || c.Message != message {
			t.Errorf("got %s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	w.upgrade("n1", true) // by somebody who tolerates the taint
	w.plan()
	w.pass(time.Hour)
	if p := w.plan(); !p.Complete() || len(p.Nodes) != 1 {
		t.Errorf("a node that should not run it counts without an old pod: %s", p.Summary())
	}
}
