package controller

import (
	"context"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/backoff"
	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/successor"
	"github.com/edgehub-io/edgehub/ota/api"
)

// successorState is what the apiserver has said of the pod that a workload gets after one is deleted.
type successorState struct {
	revision string // the ControllerRevision that it is about
	verdict  successor.Verdict
	retry    backoff.Retry // after refusals
	refused  time.Time     // the first of them since it was not refused; zero: it is not
	outvoted types.UID     // a pod that was made although it is refused, as the apiserver still said then
	asked    time.Time
	until    time.Time // when it is asked again, so that people see what is so
	// target and nodeSelector are as they were admitted; empty if no pod was returned.
	target       api.Target
	nodeSelector map[string]string
	answers      bool // the apiserver can be asked, whatever it says
}

// purpose is what an answer is for.
type purpose int

const (
	toShow   purpose = iota // to people: it may be some minutes old
	toDelete                // pods: it is asked again, unless the answer was a refusal a moment ago
	toAnswer                // an owner, who has asked for an upgrade
)

// answerEvery is how often owners' questions have the apiserver asked: a node that was taken over may ask all the time.
const answerEvery = time.Second

// unknownEvery is how long what the apiserver does not say is not asked again.
const unknownEvery = 30 * time.Second

// successorOf returns what would become of the next pod in place of old, and whether the apiserver was asked for that now.
func (s *scope) successorOf(ctx context.Context, revision *appsv1.ControllerRevision, old *corev1.Pod, pods []*corev1.Pod, p purpose) (_ successor.Verdict, asked bool) {
	t, now := &s.state.successor, time.Now()
	if t.revision != revision.Name {
		*t = successorState{revision: revision.Name, answers: t.answers}
	}
	// At each reconcile: of the times at which a workload is due, the queue keeps the earliest.
	defer func() { s.requeueAt(t.until, now) }()
	made := t.madeAllTheSame(daemonset.HashOf(revision), pods)
	switch {
	case !now.Before(t.until), made != "" && t.outvoted == "": // what has changed may be what is admitted
	case p == toDelete && t.verdict.Result != successor.Refused:
	case p == toAnswer && now.Sub(t.asked) >= answerEvery:
	case p == toAnswer:
		s.requeueAt(t.asked.Add(answerEvery), now)
		return t.verdict, false
	default:
		return t.verdict, false
	}
	pod, err := successor.PodOf(s.object, revision, old)
	before, verdict := t.verdict.Result, successor.Verdict{Result: successor.Unknown}
	if err != nil {
		verdict.Why = err.Error()
	} else {
		verdict = s.successors.Ask(ctx, pod, old)
	}
	t.verdict, t.answers, t.asked, t.until = verdict, verdict.Asked, now, now.Add(backoff.MaxRefusal)
	if verdict.Asked && verdict.Result == successor.Unknown {
		t.until = now.Add(unknownEvery) // as while a webhook is down
	}
	if t.verdict.Result == successor.Refused {
		t.retry.Refused(now)
		t.until = t.retry.Until
		if t.refused.IsZero() {
			t.refused = now
		}
		t.outvoted = made
	} else {
		t.retry, t.refused, t.outvoted = backoff.Retry{}, time.Time{}, ""
	}
	if admitted := t.verdict.Pod; admitted != nil {
		if target := api.NewTarget(daemonset.HashOf(revision), &admitted.Spec); !target.SameButNames(t.target) {
			t.target = target
		}
		t.nodeSelector, t.verdict.Pod = admitted.Spec.NodeSelector, nil // the rest of it is large
	}
	if t.verdict.Result != before {
		s.log.Info("the apiserver was asked for the next pod", s.key.kind.Lower(), s.key.String(), "revision", revision.Name,
			"result", t.verdict.Result, "why", t.verdict.Why)
	}
	return t.verdict, true
}

// admitted returns target with what admission makes of it: webhooks and policies rewrite images and add containers,
// and LimitRanges requests. As long as nobody has been asked, it is the template's. The number is the revision's at present,
// and no reason to ask again.
func (s *scope) admitted(target api.Target) api.Target {
	t := &s.state.successor
	if t.target.Revision == target.Revision {
		number := target.Number
		target = t.target
		target.Number, target.Admitted = number, true
	}
	target.Asks = t.answers
	return target
}

// unknown returns why it is not known what admission says to the next pod, "" if it is.
func (s *scope) unknown() string {
	if v := s.state.successor.verdict; v.Result == successor.Unknown {
		return v.Why
	}
	return ""
}

// permitDeletions takes all deletions out of the plan if the apiserver would refuse the pods that come after them.
// It is asked for the first of them: what admission looks at is the same in all but the name of the node.
func (s *step) permitDeletions(ctx context.Context) {
	if len(s.plan.Delete) == 0 {
		return
	}
	verdict, _ := s.successorOf(ctx, s.newest, s.plan.Delete[0].Pod, s.pods, toDelete)
	if !s.refuses(daemonset.HashOf(s.newest)) {
		return
	}
	t := &s.state.successor
	// A pod that has no node serves nobody: its node waits for the next one as if there were none, see restore.
	unplaced := slices.ContainsFunc(s.plan.Delete, func(d rollout.Deletion) bool { return d.Pod.Spec.NodeName == "" })
	if next := t.asked.Add(askAgain(t.asked.Sub(t.refused))); unplaced && next.Before(t.until) && s.successors.MayAsk(s.key.Namespace) {
		t.retry, t.until = backoff.Retry{}, next
	}
	s.plan.RefuseSuccessors(verdict.Why, t.until)
}

// inFlight is how long after a refusal a pod may still come that was admitted before.
const inFlight = 2 * time.Second

// madeAllTheSame returns a pod of the revision that Kubernetes has made since the apiserver refused it; "" if there is none.
func (t *successorState) madeAllTheSame(hash string, pods []*corev1.Pod) types.UID {
	if t.verdict.Result != successor.Refused {
		return ""
	}
	for _, pod := range pods {
		if pod.Labels[appsv1.ControllerRevisionHashLabelKey] == hash && pod.CreationTimestamp.After(t.refused.Add(inFlight)) {
			return pod.UID
		}
	}
	return ""
}

// refuses reports whether the last answer is a refusal that counts. It does not if Kubernetes has made such a pod all the
// same, and the apiserver went on to refuse it: admission may let in what Kubernetes' own controllers create and
// nobody else. Nor if an admin has the rollout go on.
func (s *scope) refuses(hash string) bool {
	t := &s.state.successor
	return t.verdict.Result == successor.Refused && t.outvoted == "" && s.options.Continue != hash
}

// refused returns why the apiserver would refuse the next pods, as it was last asked about this revision; "" if it
// would not.
func (s *scope) refused(revision *appsv1.ControllerRevision) string {
	if t := &s.state.successor; t.revision == revision.Name && s.refuses(daemonset.HashOf(revision)) {
		return "the apiserver refuses the new version: " + t.verdict.Why
	}
	return ""
}
