package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// lose makes the breaker's case: the nodes get the target and go NotReady.
func (w *world) lose(after time.Duration, nodes ...string) {
	w.t.Helper()
	for _, n := range nodes {
		w.upgrade(n, true)
	}
	w.look()
	w.pass(after)
	for _, n := range nodes {
		w.turn(n, never)
	}
}

func TestTheBreakerOpensWhenUpdatedNodesAreLost(t *testing.T) {
	tests := map[string]struct {
		annotations map[string]string
		arrange     func(*world)
		open        bool
	}{
		"one node is none of the image's doing": {nil, func(w *world) { w.lose(time.Minute, "n1") }, false},
		"two of two":                            {nil, func(w *world) { w.lose(time.Minute, "n1", "n2") }, true},
		"two of four are not more than half": {nil, func(w *world) {
			w.upgrade("n3", true)
			w.upgrade("n4", true)
			w.lose(time.Minute, "n1", "n2")
		}, false},
		"two of three are": {nil, func(w *world) {
			w.upgrade("n3", true)
			w.lose(time.Minute, "n1", "n2")
		}, true},
		"fewer than the maximum": {map[string]string{api.MaxUnavailableAnnotation: "3"}, func(w *world) {
			w.lose(time.Minute, "n1", "n2")
		}, false},
		"as many as the maximum": {map[string]string{api.MaxUnavailableAnnotation: "3"}, func(w *world) {
			w.lose(time.Minute, "n1", "n2", "n3")
		}, true},
		"after the window it is none of the image's doing": {nil, func(w *world) {
			w.lose(BreakerWindow+time.Second, "n1", "n2")
		}, false},
		"before the pod has started": {nil, func(w *world) {
			w.upgrade("n1", false)
			w.upgrade("n2", false)
			w.look()
			w.pass(time.Hour) // a big image
			w.turn("n1", never)
			w.turn("n2", never)
		}, true},
		"the window begins when the pod starts, not when it is made": {nil, func(w *world) {
			w.upgrade("n1", false)
			w.upgrade("n2", false)
			w.look()
			w.pass(time.Hour)
			w.ready(w.on("n1").UID, true)
			w.ready(w.on("n2").UID, true)
			w.look()
			w.pass(time.Minute)
			w.turn("n1", never)
			w.turn("n2", never)
		}, true},
		"nodes with old pods are lost to something else": {nil, func(w *world) {
			w.turn("n1", never)
			w.turn("n2", never)
		}, false},
		"nodes that were NotReady before they got their pod": {nil, func(w *world) {
			w.turn("n1", never)
			w.turn("n2", never)
			w.look()
			w.upgrade("n1", false)
			w.upgrade("n2", false)
		}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 10)
			for k, v := range tt.annotations {
				w.ds.Annotations[k] = v
			}
			tt.arrange(w)
			p := w.plan()
			if p.Breaker.Open != tt.open || (len(p.Delete) == 0) != tt.open {
				t.Errorf("open: %v, deletes %v; want open: %v", p.Breaker, deletions(&p), tt.open)
			}
		})
	}
}

func TestTheBreakerStaysClosedWhenThereIsNothingToKeep(t *testing.T) {
	w := newWorld(t, 3)
	w.lose(time.Minute, "n1", "n2", "n3")
	if p := w.expect(); p.Breaker.Open || !p.Complete() {
		t.Errorf("breaker %v; %s", p.Breaker, p.Summary())
	}
}

func TestAnOpenBreakerAlsoKeepsPodsThatAreNotReady(t *testing.T) {
	w := newWorld(t, 10)
	w.lose(time.Minute, "n1", "n2")
	w.ready(w.on("n5").UID, false)
	p := w.expect()
	if got := state(t, &p, "n5"); got.State != HeldByBreaker || got.Reason == "" {
		t.Errorf("n5 is %v", got)
	}
	if got := state(t, &p, "n6"); got.State != HeldByBreaker {
		t.Errorf("n6 is %v", got)
	}
}

func TestTheBreakerClosesWhenAllHaveRecovered(t *testing.T) {
	w := newWorld(t, 10)
	w.lose(time.Minute, "n1", "n2")
	w.expect()
	w.turn("n1", corev1.ConditionTrue)
	w.expect()
	w.pass(time.Hour)
	w.expect()
	w.turn("n2", corev1.ConditionTrue)
	p := w.expect()
	if want := w.now.Add(NodeSettle); !p.Wake.Equal(want) {
		t.Errorf("wake at %v, want %v", p.Wake, want)
	}
	w.pass(NodeSettle)
	w.expect("n3")
}

func TestTheBreakerClosesWhenTheTemplateChanges(t *testing.T) {
	w := newWorld(t, 10)
	w.lose(time.Minute, "n1", "n2")
	w.expect()
	w.target = "newer"
	w.expect("n3")
	w.target = target // and does not remember
	w.upgrade("n3", true)
	w.expect("n4")
}

func TestTheBreakerClosesWhenTheLostNodesAreRemoved(t *testing.T) {
	w := newWorld(t, 10)
	w.lose(time.Minute, "n1", "n2")
	w.expect()
	delete(w.nodes, "n1")
	delete(w.nodes, "n2")
	w.expect("n3")
}

func TestAnAdminOverridesTheBreakerForOneRevision(t *testing.T) {
	w := newWorld(t, 10)
	w.lose(time.Minute, "n1", "n2")
	w.ds.Annotations[api.ContinueAnnotation] = "another"
	w.expect()
	w.ds.Annotations[api.ContinueAnnotation] = target
	p := w.expect("n3")
	if !p.Breaker.Open || !p.Breaker.Overridden {
		t.Errorf("breaker %v", p.Breaker)
	}
}

// Every pair of ways in which the lost nodes look to a process that starts now.
func TestTheBreakerAfterARestart(t *testing.T) {
	tests := map[string]struct {
		halted  string
		arrange func(*world)
		open    bool
	}{
		"nobody had said so, and the times say that the nodes are lost": {"", func(*world) {}, true},
		"nobody had said so, and the nodes went long after": {"", func(w *world) {
			w.turn("n1", corev1.ConditionTrue)
			w.turn("n2", corev1.ConditionTrue)
			w.pass(time.Hour)
			w.turn("n1", never)
			w.turn("n2", never)
		}, false},
		"the kubelet says False, with a clock that is years off": {"", func(w *world) {
			for _, n := range []string{"n1", "n2"} {
				w.turn(n, corev1.ConditionFalse)
				w.nodes[n].Status.Conditions[0].LastTransitionTime.Time = time.Unix(0, 0)
			}
		}, true},
		"the condition says so, and the nodes are still away": {target, func(w *world) {
			w.pass(24 * time.Hour)
			for _, n := range []string{"n1", "n2"} {
				w.turn(n, corev1.ConditionFalse)
				w.nodes[n].Status.Conditions[0].LastTransitionTime.Time = time.Unix(0, 0)
			}
		}, true},
		"the condition says so, and one node is still away": {target, func(w *world) {
			w.turn("n1", corev1.ConditionTrue)
			w.pass(24 * time.Hour)
		}, true},
		"the condition says so, and all have recovered": {target, func(w *world) {
			w.turn("n1", corev1.ConditionTrue)
			w.turn("n2", corev1.ConditionTrue)
		}, false},
		"the condition is about another revision": {oldRevision, func(w *world) {
			w.turn("n1", corev1.ConditionTrue)
		}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 10)
			w.lose(time.Minute, "n1", "n2")
			w.plan()
			tt.arrange(w)
			w.restart()
			w.halted = tt.halted
			w.plan()
			w.pass(NodeSettle)
			p := w.plan()
			if p.Breaker.Open != tt.open || (len(p.Delete) == 0) != tt.open {
				t.Errorf("open: %v, deletes %v; want open: %v", p.Breaker, deletions(&p), tt.open)
			}
		})
	}
}

func TestTheConditionKeepsTheBreakerOpenAcrossARestart(t *testing.T) {
	w := newWorld(t, 10)
	w.lose(time.Minute, "n1", "n2")
	p := w.plan()
	w.ds.Status.Conditions = Conditions(&p)
	if got := HaltedRevision(w.ds); got != target {
		t.Errorf("got %q, want %q", got, target)
	}
	w.ds.Status.Conditions = nil
	if got := HaltedRevision(w.ds); got != "" {
		t.Errorf("got %q without conditions", got)
	}
}

func TestConditions(t *testing.T) {
	type want struct {
		complete, progressing, halted corev1.ConditionStatus
		reason                        string
		words                         []string
	}
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	tests := map[string]struct {
		annotations map[string]string
		arrange     func(*world)
		want        want
	}{
		"under way": {nil, func(w *world) { w.upgrade("n1", false) },
			want{no, yes, no, ReasonUpdating, []string{"controllerrevision new: ", "0 of 3 nodes", "1 unavailable (n1: pod is not Ready)", "2 pending"}}},
		"done": {nil, func(w *world) { w.target = oldRevision }, want{yes, no, no, ReasonComplete, []string{"3 of 3 nodes updated"}}},
		"done, though paused": {map[string]string{api.PausedAnnotation: "true"}, func(w *world) { w.target = oldRevision },
			want{yes, no, no, ReasonComplete, nil}},
		"paused": {map[string]string{api.PausedAnnotation: "true"}, func(w *world) { w.upgrade("n1", false) },
			want{no, no, no, ReasonPaused, []string{api.PausedAnnotation}}},
		"waiting": {nil, func(w *world) { w.upgrade("n1", true); w.upgrade("n2", true); w.turn("n3", never) },
			want{no, no, no, ReasonWaiting, []string{"2 of 3", "1 waiting until their node is Ready (n3)"}}},
		"partition": {map[string]string{api.PartitionAnnotation: "1"}, func(w *world) { w.upgrade("n1", true); w.upgrade("n2", true) },
			want{no, no, no, ReasonHeldByPartition, []string{api.PartitionAnnotation}}},
		"selector": {map[string]string{api.NodeSelectorAnnotation: "a=b"}, func(*world) {},
			want{no, no, no, ReasonHeldBySelector, []string{api.NodeSelectorAnnotation}}},
		"halted": {nil, func(w *world) { w.lose(time.Minute, "n1", "n2") },
			want{no, no, yes, ReasonHalted, nil}},
		"halted and overridden": {map[string]string{api.ContinueAnnotation: target}, func(w *world) { w.lose(time.Minute, "n1", "n2") },
			want{no, yes, yes, ReasonUpdating, nil}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3)
			for k, v := range tt.annotations {
				w.ds.Annotations[k] = v
			}
			tt.arrange(w)
			p := w.plan()
			got := Conditions(&p)
			if got[0].Status != tt.want.complete || got[1].Status != tt.want.progressing || got[2].Status != tt.want.halted {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if got[1].Reason != tt.want.reason {
				t.Errorf("got reason %s, want %s", got[1].Reason, tt.want.reason)
			}
			for _, words := range tt.want.words {
				if !strings.Contains(got[1].Message, words) {
					t.Errorf("got %q, want %q in it", got[1].Message, words)
				}
			}
		})
	}
}

func TestTheMessageOfAnOpenBreakerNamesTheNodesAndWhatToDo(t *testing.T) {
	w := newWorld(t, 40)
	var nodes []string
	for i := range 10 {
		nodes = append(nodes, fmt.Sprintf("n%d", i+1))
	}
	w.lose(time.Minute, nodes...)
	p := w.plan()
	i := slices.IndexFunc(Conditions(&p), func(c appsv1.DaemonSetCondition) bool { return c.Type == api.HaltedCondition })
	message := Conditions(&p)[i].Message
	for _, words := range []string{"10 of the 10 nodes", "n1, n10, n2, n3, n4 and 5 more", api.ContinueAnnotation + " is set to new"} {
		if !strings.Contains(message, words) {
			t.Errorf("got %q, want %q in it", message, words)
		}
	}
}

func TestConditionOfAClosedBreaker(t *testing.T) {
	tests := map[string]struct {
		breaker Breaker
		want    string
	}{
		"no node is lost":                {Breaker{Updated: 3}, "stay Ready"},
		"nothing is left to be kept":     {Breaker{Updated: 3, Lost: []string{"n1", "n2"}}, "NotReady: n1, n2"},
		"open, and the admin said go on": {Breaker{Updated: 3, Lost: []string{"n1", "n2"}, Open: true, Overridden: true}, "goes on all the same"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			conditions := Conditions(&Plan{Revision: "new", Breaker: tt.breaker})
			i := slices.IndexFunc(conditions, func(c appsv1.DaemonSetCondition) bool { return c.Type == api.HaltedCondition })
			if got := conditions[i].Message; !strings.Contains(got, tt.want) {
				t.Errorf("message %q, want one with %q", got, tt.want)
			}
		})
	}
}
