package controller

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/backoff"
	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/successor"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// successorState is what the apiserver has said of the pod that a workload gets after one is deleted.
type successorState struct {
	revision string // the ControllerRevision that it is about
	verdict  successor.Verdict
	retry    backoff.Retry  // after refusals
	until    time.Time      // when it is asked again, so that people see what is so
	target   upgrade.Target // as it was admitted; without a revision if no pod was returned
}

// licence is whether an answer is to be acted upon, or only to be shown.
type licence bool

const (
	toShow   licence = false
	toDelete licence = true
)

// successorOf returns what would become of the next pod in place of old. A refusal counts for a while,
// an answer that is to be shown for longer; before a deletion, the apiserver is asked again.
func (s *scope) successorOf(ctx context.Context, revision *appsv1.ControllerRevision, old *corev1.Pod, l licence) successor.Verdict {
	t, now := &s.state.successor, time.Now()
	if t.revision != revision.Name {
		*t = successorState{revision: revision.Name}
	}
	if now.Before(t.until) && (l == toShow || t.verdict.Result == successor.Refused) {
		return t.verdict
	}
	pod, err := successor.PodOf(s.object, revision, old)
	if err != nil {
		return successor.Verdict{Result: successor.Unknown, Why: err.Error()}
	}
	before := t.verdict.Result
	t.verdict, t.until = s.successors.Ask(ctx, pod, old), now.Add(backoff.MaxRefusal)
	if t.verdict.Result == successor.Refused {
		t.retry.Refused(now)
		t.until = t.retry.Until
	} else {
		t.retry = backoff.Retry{}
	}
	if t.verdict.Pod != nil {
		if target := upgrade.NewTarget(daemonset.HashOf(revision), &t.verdict.Pod.Spec); !target.SameButNames(t.target) {
			t.target = target
		}
	}
	if t.verdict.Result != before {
		s.log.Info("the apiserver was asked for the next pod", s.key.kind.Lower(), s.key.String(), "revision", revision.Name,
			"result", t.verdict.Result, "why", t.verdict.Why)
	}
	s.requeueAt(t.until, now)
	return t.verdict
}

// admitted returns target with what admission makes of it: webhooks and policies rewrite images and add containers,
// and LimitRanges requests. As long as nobody has been asked, it is the template's.
func (s *scope) admitted(target upgrade.Target) upgrade.Target {
	if t := &s.state.successor; t.target.Revision == target.Revision {
		return t.target
	}
	return target
}

// permitDeletions takes all deletions out of the plan if the apiserver would refuse the pods that come after them.
// It is asked for the first of them: what admission looks at is the same in all but the name of the node.
func (s *step) permitDeletions(ctx context.Context) {
	if len(s.plan.Delete) == 0 {
		return
	}
	verdict := s.successorOf(ctx, s.newest, s.plan.Delete[0].Pod, toDelete)
	if verdict.Result == successor.Refused {
		s.plan.RefuseSuccessors(verdict.Why, s.state.successor.until)
	}
}

// refused returns why the apiserver would refuse the next pods, as it was last asked about this revision; "" if it
// would not.
func (s *scope) refused(revision string) string {
	if t := &s.state.successor; t.revision == revision && t.verdict.Result == successor.Refused {
		return "the apiserver refuses the new version: " + t.verdict.Why
	}
	return ""
}
