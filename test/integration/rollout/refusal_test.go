package rollout_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/controller/rollout"
)

var podResource = schema.GroupResource{Resource: "pods"}

func TestOneConflictDoesNotStopANode(t *testing.T) {
	p := newPlay(t, 1, nil)
	c := p.start()
	var conflicts atomic.Int32
	c.Refuse(func(_, pod string) *apierrors.StatusError {
		if conflicts.Add(1) > 1 {
			return nil
		}
		return apierrors.NewConflict(podResource, pod, errors.New("in use"))
	})
	p.SetImage("app:2")
	p.Await("app:2", nodes)
	if conflicts.Load() == 0 {
		t.Error("there was no conflict, and this test shows nothing")
	}
}

// denied is the answer when an admission webhook denies a request with this code.
func denied(code int32, words string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Message: `admission webhook "guard.example.com" denied the request: ` + words,
	}}
}

// A single pod that may not be deleted, for whichever reason, stays, and all others are
// updated.
func TestAPodThatMayNotBeDeletedHoldsUpNoOther(t *testing.T) {
	for words, refuse := range map[string]func(pod string) *apierrors.StatusError{
		"not today": func(pod string) *apierrors.StatusError {
			return apierrors.NewForbidden(podResource, pod, errors.New("not today"))
		},
		"in use": func(pod string) *apierrors.StatusError {
			return apierrors.NewConflict(podResource, pod, errors.New("in use"))
		},
		"out of order": func(string) *apierrors.StatusError { return denied(http.StatusInternalServerError, "out of order") },
		"no such lock": func(string) *apierrors.StatusError { return denied(http.StatusNotFound, "no such lock") },
		"failed calling webhook": func(string) *apierrors.StatusError {
			return apierrors.NewInternalError(errors.New(`failed calling webhook "guard.example.com": EOF`))
		},
	} {
		t.Run(words, func(t *testing.T) {
			p := newPlay(t, 1, nil)
			c := p.start()
			first := p.firsts(1)[0]
			kept := p.Pods()[first]
			c.Refuse(func(_, pod string) *apierrors.StatusError {
				if pod != kept.Name {
					return nil
				}
				return refuse(pod)
			})
			p.SetImage("app:2")
			p.Await("app:2", nodes-1)
			p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonRefused,
				"9 of 10 nodes updated", "1 keeps its pod ("+first+": its deletion is refused: ", words)
			p.AwaitEvent("DeletingPodsFailed", "Warning", kept.Name, words, "it is tried again")
			if slices.Contains(p.Deleted(), first) || p.Pods()[first].UID != kept.UID {
				t.Errorf("the pod on %s is gone", first)
			}
			c.Refuse(nil)
			p.Await("app:2", nodes)
			p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete)
		})
	}
}

// Pods that serve nobody change all the time, and the watch is late, so that each try to
// replace one ends in a conflict. The tries become rare.
func TestALateWatchCausesNoStormOfDeletions(t *testing.T) {
	const late = 3 * time.Second
	p := newPlay(t, nodes, map[string]string{rollout.PausedAnnotation: "true"})
	c := p.start()
	p.SetImage("app:2")
	p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonPaused)
	p.fail(names(1, nodes)...)
	rest(2 * settle) // the controller knows
	c.Lag(late)
	p.Annotate(rollout.PausedAnnotation, nil)
	begin := time.Now()
	for i := 0; time.Since(begin) < 5*late; i++ {
		p.Kubectl("annotate", "pods", "--all", "--overwrite", fmt.Sprintf("touched=%d", i))
	}
	got := c.Calls()["DELETE pods"]
	t.Logf("%d deletions of %d pods in %v, with watches that are %v late", got, nodes, time.Since(begin), late)
	if c.Refused() == 0 {
		t.Error("nothing was refused: this test shows nothing")
	}
	if most := 8 * nodes; got > most { // after 0, 0.2, 0.6, 1.4, 3, 6.2, 12.6 and 25.4 s
		t.Errorf("%d deletions of %d pods, want at most %d", got, nodes, most)
	}
	c.Lag(0)
	p.Await("app:2", nodes)
}
