package rollout

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Reasons of the conditions.
const (
	ReasonUpdating        = "Updating"
	ReasonComplete        = "AllNodesUpdated"
	ReasonPaused          = "Paused"
	ReasonHalted          = "UpdatedNodesLost"
	ReasonWaiting         = "WaitingForNotReadyNodes"
	ReasonHeldByPartition = "HeldByPartition"
	ReasonHeldBySelector  = "HeldByNodeSelector"
	ReasonHeldByPlacement = "HeldByPlacement"
	ReasonInvalid         = "InvalidAnnotation"
	ReasonRefused         = "DeletionRefused"
	ReasonHeldByOwner     = "HeldByOwner"
	// ReasonSuccessorRefused is that of a rollout whose next pods the apiserver would refuse, and
	// ReasonLacking that of one with nodes for which Kubernetes has made no pod.
	ReasonSuccessorRefused = "SuccessorRefused"
	ReasonLacking          = "PodNotCreated"
	ReasonRolledBack       = "RolledBackByOwners"
	// ReasonAccepted is that of api.InvalidCondition when it is False, and
	// ReasonNotHalted that of api.HaltedCondition.
	ReasonAccepted  = "Accepted"
	ReasonNotHalted = "NodesStayReady"
	// ReasonNewTemplate holds between a change of the DaemonSet and its new revision.
	ReasonNewTemplate = "WaitingForRevision"
)

// messagePrefix is followed by the revision and a colon, in the message of each
// condition.
const messagePrefix = "controllerrevision "

// maxNamed is how many nodes a message names.
const maxNamed = 5

// Conditions returns the conditions that describe the plan, without their times.
func Conditions(p *Plan) []appsv1.DaemonSetCondition {
	status, reason, message := progress(p)
	prefix := messagePrefix + p.Revision + ": "
	complete := condition(api.CompleteCondition, p.Complete(), reason, prefix+message)
	progressing := condition(api.ProgressingCondition, status, reason, prefix+message)
	halted := condition(api.HaltedCondition, p.Breaker.Open, ReasonNotHalted, prefix+"the nodes that were updated stay Ready")
	switch {
	case p.Breaker.Open:
		halted.Reason, halted.Message = ReasonHalted, prefix+p.Breaker.message(p.Revision)
	case len(p.Breaker.Lost) > 0:
		halted.Message = prefix + "there is no reason to halt, though these nodes are NotReady: " + p.Breaker.LostNodes()
	}
	return []appsv1.DaemonSetCondition{complete, progressing, halted}
}

// AwaitRevision are the conditions while the target revision is not known.
func AwaitRevision() []appsv1.DaemonSetCondition {
	const message = "the DaemonSet has changed, and its revision is not known yet"
	return []appsv1.DaemonSetCondition{
		condition(api.CompleteCondition, false, ReasonNewTemplate, message),
		condition(api.ProgressingCondition, true, ReasonNewTemplate, message),
	}
}

// Stuck are the conditions of a rollout that cannot go on because of a problem
// with what the DaemonSet asks for.
func Stuck(problem string) []appsv1.DaemonSetCondition {
	return []appsv1.DaemonSetCondition{
		condition(api.CompleteCondition, false, ReasonInvalid, problem),
		condition(api.ProgressingCondition, false, ReasonInvalid, problem),
	}
}

// Invalid is the condition of a DaemonSet with this problem; "" is none.
func Invalid(problem string) appsv1.DaemonSetCondition {
	if problem == "" {
		return condition(api.InvalidCondition, false, ReasonAccepted, "the annotations can be carried out")
	}
	return condition(api.InvalidCondition, true, ReasonInvalid, problem)
}

// HaltedRevision returns the revision for which the condition of ds records that the
// circuit breaker is open, or "".
func HaltedRevision(ds *appsv1.DaemonSet) string {
	c := daemonset.Condition(ds, api.HaltedCondition)
	if c == nil || c.Status != corev1.ConditionTrue {
		return ""
	}
	return RevisionIn(c.Message)
}

// RevisionIn returns the revision that the message of a condition is about, or "".
func RevisionIn(message string) string {
	rest, prefixed := strings.CutPrefix(message, messagePrefix)
	revision, _, ended := strings.Cut(rest, ":")
	if !prefixed || !ended {
		return ""
	}
	return revision
}

func condition(t appsv1.DaemonSetConditionType, is bool, reason, message string) appsv1.DaemonSetCondition {
	c := appsv1.DaemonSetCondition{Type: t, Status: corev1.ConditionFalse, Reason: reason, Message: message}
	if is {
		c.Status = corev1.ConditionTrue
	}
	return c
}

// progress reports whether nodes are being updated, or what the others wait for.
func progress(p *Plan) (is bool, reason, message string) {
	sum := p.Summary()
	switch {
	case p.Complete() && p.Counts[HeldByPlacement] > 0:
		return false, ReasonHeldByPlacement, "complete, " + p.Placement()
	case p.Complete():
		return false, ReasonComplete, sum
	case p.Breaker.Holds():
		return false, ReasonHalted, sum + "; condition " + string(api.HaltedCondition) + " says why nothing is deleted"
	case p.Counts[HeldByPause] > 0:
		return false, ReasonPaused, sum + "; set annotation " + api.PausedAnnotation + " to false to go on"
	case len(p.Lacking) > 0:
		return false, ReasonLacking, sum + "; " + p.Lacks() + ": no other pod is to be deleted until it does, or annotation " + api.ContinueAnnotation + " is set to " + p.Revision
	case p.SuccessorsRefused:
		return false, ReasonSuccessorRefused, sum + "; it is tried again, less and less often"
	case p.Refusing():
		return false, ReasonRefused, sum + "; each is tried again, less and less often"
	case p.waitsFor(HeldByOwner):
		return false, ReasonHeldByOwner, sum
	case p.Counts[Pending] > 0 && p.waitsFor(RolledBack):
		return false, ReasonRolledBack, sum
	case p.Counts[Unavailable]+p.Counts[Pending] > 0:
		return true, ReasonUpdating, sum
	case p.Counts[WaitingNotReady] > 0:
		return false, ReasonWaiting, sum
	case p.Counts[HeldByPartition] > 0:
		return false, ReasonHeldByPartition, sum
	case p.Counts[HeldBySelector] > 0:
		return false, ReasonHeldBySelector, sum
	default:
		return false, ReasonRolledBack, sum
	}
}

// Summary is one line: how many nodes are in each state, with the names of those that may
// need attention.
func (p *Plan) Summary() string {
	updated := "%d of %d nodes updated"
	switch {
	case p.pods:
		updated = "%d of %d pods updated"
	case len(p.Nodes) == 0:
		return "no node should run this daemon"
	}
	out := []string{fmt.Sprintf(updated, p.Counts[Updated], len(p.Nodes))}
	add := func(state State, text string, named bool) {
		n := p.Counts[state]
		if n == 0 {
			return
		}
		s := fmt.Sprintf("%d %s", n, text)
		if named {
			s += " (" + p.names(state) + ")"
		}
		out = append(out, s)
	}
	add(Unavailable, "unavailable", true)
	add(Pending, "pending"+p.awaiting(), false)
	if refused := p.refused(); refused != "" {
		out = append(out, refused)
	}
	add(WaitingNotReady, "waiting until their node is Ready", true)
	add(HeldByOwner, "held by their owners", true)
	add(WaitingForOwner, "waiting for their owner", false)
	add(HeldBySelector, "held by annotation "+api.NodeSelectorAnnotation, false)
	add(HeldByPartition, "held by annotation "+api.PartitionAnnotation, false)
	add(HeldByPause, "held by annotation "+api.PausedAnnotation, false)
	add(HeldByBreaker, "held by the circuit breaker", false)
	if p.Counts[HeldByPlacement] > 0 {
		out = append(out, p.Placement())
	}
	add(RolledBack, "rolled back by their owners", true)
	return strings.Join(out, ", ")
}

// Placement names the nodes that would get no new pod, each with what keeps it away; there must be some.
func (p *Plan) Placement() string {
	n, pods := p.Counts[HeldByPlacement], "pods"
	if n == 1 {
		pods = "pod"
	}
	return fmt.Sprintf("%d %s held by placement (%s)", n, pods, p.names(HeldByPlacement))
}

// awaiting describes how many of the pending nodes wait for images.
func (p *Plan) awaiting() string {
	if p.AwaitImages == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d until their images are there)", p.AwaitImages)
}

// names lists the nodes in a state, with the reason if they are unavailable, or held by owners or placement.
func (p *Plan) names(state State) string {
	return listed(p.first(func(n *NodeStatus) string {
		switch {
		case n.State != state:
			return ""
		case state == HeldByPlacement:
			return n.Reason // names the node
		case (state == Unavailable || state == HeldByOwner) && n.Reason != "" && !n.Refused:
			return n.Name + ": " + n.Reason
		default:
			return n.Name
		}
	}), p.Counts[state])
}

// first returns what name returns for the first nodes, without "", as many as fit a message.
func (p *Plan) first(name func(*NodeStatus) string) (names []string) {
	for i := range p.Nodes {
		if s := name(&p.Nodes[i]); s != "" {
			names = append(names, s)
		}
		if len(names) == maxNamed {
			break
		}
	}
	return names
}

// listed joins names, of which there are total.
func listed(names []string, total int) string {
	out := strings.Join(names, ", ")
	if more := total - len(names); more > 0 {
		out += fmt.Sprintf(" and %d more", more)
	}
	return out
}

// LostNodes lists the lost nodes, not more than fit a message.
func (b Breaker) LostNodes() string {
	return listed(b.Lost[:min(len(b.Lost), maxNamed)], len(b.Lost))
}

func (b Breaker) message(revision string) string {
	what := fmt.Sprintf("%d of the %d nodes with this revision went NotReady soon after their pod started, or before it did: %s",
		len(b.Lost), b.Updated, b.LostNodes())
	if b.Overridden {
		return what + "; the rollout goes on all the same, as annotation " + api.ContinueAnnotation + " says"
	}
	return fmt.Sprintf("%s; no further pod is deleted until all of them are Ready again, the pod template changes, or annotation %s is set to %s",
		what, api.ContinueAnnotation, revision)
}
