package progress

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/workload"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Exit codes, which scripts branch on, beside cli.Done, when nothing is left to be done, and cli.Failed, when the question could not
// be answered. The help of the command status explains them.
const (
	ExitUnderWay = 2 // it goes on by itself
	ExitHeldUp   = 3 // it does not go on until somebody does something
)

// Phase is the state of a rollout as a whole.
type Phase string

// The phases.
const (
	Complete Phase = "complete" // every node that would get a pod of the target revision has one
	Held     Phase = "held"     // every node is updated but those that annotations hold, or whose owners went back
	Updating Phase = "updating" // it goes on by itself
	Waiting  Phase = "waiting"  // the rest waits for nodes to be Ready, or for owners
	Paused   Phase = "paused"   // by the annotation
	Halted   Phase = "halted"   // by the circuit breaker
	Missing  Phase = "missing"  // a node lacks its pod, and Kubernetes does not bring one
	Refused  Phase = "refused"  // the apiserver does not let the controller delete pods, or refuses the next ones
	Invalid  Phase = "invalid"  // the annotations cannot be carried out
	Unknown  Phase = "unknown"  // the controller does not say it
)

// ExitCode is that of a status command which ends with this phase.
func (s Phase) ExitCode() int {
	switch s {
	case Complete, Held:
		return cli.Done
	case Updating, Waiting, Unknown:
		return ExitUnderWay
	default:
		return ExitHeldUp
	}
}

// members are what r.Nodes are.
func (r *Report) members() string {
	if r.Kind == workload.StatefulSet {
		return "pod"
	}
	return "node"
}

// phase returns what the reason of the controller means for a person, and what to do or to expect.
func (r *Report) phase(reason string, options rollout.Options, w workload.Object) (Phase, string) {
	resume := "kubectl edgehub resume ds/" + r.Name + " -n " + r.Namespace
	switch {
	case len(r.Missing) > 0, reason == rollout.ReasonLacking:
		return Missing, "mend what keeps the pods from coming; they come by themselves then, and the rest goes on. More: kubectl describe " +
			r.Kind.Lower() + " " + r.Name + " -n " + r.Namespace
	case reason == rollout.ReasonRolledBack && r.Counts[rollout.Pending] > 0:
		return Updating, r.whatIsNext(options)
	}
	switch reason {
	case rollout.ReasonComplete:
		return Complete, "every " + r.members() + " runs the target revision"
	case rollout.ReasonHeldByPlacement:
		_, placement, _ := strings.Cut(conditionOn(w, api.CompleteCondition), ": complete, ")
		return Complete, placement
	case rollout.ReasonHalted:
		return Halted, conditionOn(w, api.HaltedCondition) + ". To go on all the same: " + resume
	case rollout.ReasonPaused:
		return Paused, "no further pod is deleted. To go on: " + resume
	case rollout.ReasonRefused, rollout.ReasonSuccessorRefused:
		return Refused, conditionOn(w, api.ProgressingCondition)
	case rollout.ReasonWaiting:
		if r.Counts[rollout.WaitingNotReady]+r.Counts[rollout.Updated] < r.total() {
			return Waiting, "every Ready node that the annotations let go is updated; others follow by themselves when they are Ready again"
		}
		return Waiting, "every Ready node is updated; the others follow by themselves when they are Ready again"
	case rollout.ReasonHeldByOwner:
		return Waiting, fmt.Sprintf("the others follow by themselves when the holds of their owners end, after %v at most", options.Policy.MaxHold)
	case rollout.ReasonWaitingForOwners:
		return Waiting, "the owner of a node upgrades its pod, by a POST to the node's own API; nothing is done from here"
	case rollout.ReasonHeldByPartition, rollout.ReasonHeldBySelector:
		return Held, "every node that the annotations let go is updated"
	case rollout.ReasonRolledBack:
		return Held, "the owners of the others went back; they upgrade again, or get the next revision"
	case rollout.ReasonNewTemplate:
		return Updating, "Kubernetes makes the revision; this takes a moment"
	case rollout.ReasonUpdating:
		return Updating, r.whatIsNext(options)
	default:
		return Unknown, "this program does not know the controller's word for it, " + reason + ": use the one of the controller's release"
	}
}

func (r *Report) whatIsNext(options rollout.Options) string {
	awaiting := 0
	for _, g := range r.groups {
		if g.AwaitsImages {
			awaiting += g.Count
		}
	}
	switch pending := r.Counts[rollout.Pending]; {
	case pending > 0 && pending == awaiting:
		return fmt.Sprintf("the next pods follow when their images are there, or after %v without them", options.PrepullTimeout)
	case pending > 0 && r.Limits != nil && r.Limits.UnavailableNodes >= r.Limits.MaxUnavailableNodes:
		return fmt.Sprintf("the next pods follow when fewer than %d Ready nodes are unavailable", r.Limits.MaxUnavailableNodes)
	default:
		return "it goes on by itself"
	}
}

// conditionOn returns the message of a condition of w.
func conditionOn(w workload.Object, t appsv1.DaemonSetConditionType) string {
	if ds, ok := w.(*appsv1.DaemonSet); ok {
		if c := daemonset.Condition(ds, t); c != nil {
			return c.Message
		}
	}
	return ""
}
