package rollout

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Refusal is why a planned deletion was not carried out.
type Refusal struct {
	// Message is the apiserver's, quoted; "" when the pod had only changed meanwhile
	// and nobody refused its deletion.
	Message string
	// Until is when the next request may be sent.
	Until time.Time
	// Successor is whether not the deletion would be refused, but the pod that comes after it.
	Successor bool
}

// stalled is how many refusals in a row, of any pods, are taken as a sign that
// the next deletion would be refused as well.
const stalled = 3

func (r *Refusal) named() bool { return r != nil && r.Message != "" }

// until is the zero time, before any other, without a refusal.
func (r *Refusal) until() time.Time {
	if r == nil {
		return time.Time{}
	}
	return r.Until
}

func (r *Refusal) reason() string {
	if r.Successor {
		return "no pod would come in its place: the apiserver refuses it: " + r.Message
	}
	return "its deletion is refused: " + r.Message
}

// refusal returns why pod could not be deleted, nil if nothing prevented it.
func (in *Input) refusal(pod *corev1.Pod) *Refusal {
	if in.Refused == nil {
		return nil
	}
	return in.Refused(pod.UID)
}

// conflictReason describes why there is not exactly one pod on this node. The answer to a
// deletion comes first, if it left open whether the pod was deleted.
func (in *Input) conflictReason(p *nodePods) string {
	for _, pod := range p.terminating {
		if r := in.refusal(pod); r.named() && pod.DeletionTimestamp.IsZero() {
			return "it is not known whether its pod was deleted: " + r.Message
		}
	}
	return p.conflict()
}

// Revert changes the plan to the state in which the apiserver did not carry out d.
func (p *Plan) Revert(d Deletion, r *Refusal) {
	name := NodeOf(d.Pod)
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if n.Name != name {
			continue
		}
		p.Counts[n.State]--
		n.State, n.Reason, n.Pod, n.Revision = Unavailable, d.unavailable, d.Pod.Name, revisionOf(d.Pod)
		if d.unavailable == "" {
			n.State = Pending
			p.Unavailable--
		}
		p.Counts[n.State]++
		if r.named() {
			n.Refused, n.Reason = true, r.reason()
			p.Refused++
		}
	}
}

// RefuseSuccessors changes the plan to one in which no pod is deleted, since the apiserver would refuse
// the pods that Kubernetes makes in their place. why has its words, until is when it is asked again.
func (p *Plan) RefuseSuccessors(why string, until time.Time) {
	for _, d := range p.Delete {
		p.Revert(d, &Refusal{Message: why, Successor: true})
	}
	p.Delete, p.SuccessorsRefused = nil, true
	p.wakeAt(until)
}

// Refusing reports whether the rollout is stuck because deletions are refused: no node
// is being updated, and the remaining deletions were refused, wait for refused ones, or
// are likely to be refused.
func (p *Plan) Refusing() bool {
	if p.Refused == 0 {
		return false
	}
	open := 0 // nodes that may yet be updated
	for i := range p.Nodes {
		n := &p.Nodes[i]
		switch {
		case n.Refused:
		case n.State == Unavailable, n.AwaitsImages:
			return false
		case n.State == Pending:
			open++
		}
	}
	return open == 0 || p.Unavailable >= p.Max || p.RefusedInARow >= stalled
}

// refused names the nodes whose pods were not deleted, and the error for the first of
// them; "" if there are none.
func (p *Plan) refused() string {
	if p.Refused == 0 {
		return ""
	}
	reason := "" // of the first
	names := p.first(func(n *NodeStatus) string {
		if !n.Refused {
			return ""
		}
		reason = cmp.Or(reason, n.Reason)
		return n.Name
	})
	if p.Refused == 1 {
		return fmt.Sprintf("1 keeps its pod (%s: %s)", names[0], reason)
	}
	return fmt.Sprintf("%d keep their pods (%s; on %s, %s)", p.Refused, listed(names, p.Refused), names[0], reason)
}
