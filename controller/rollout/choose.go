package rollout

import (
	"cmp"
	"slices"
)

// order sorts candidates in the order in which they are admitted.
func order(a, b candidate) int {
	return cmp.Or(
		cmp.Compare(rank(a.stays == ""), rank(b.stays == "")), // pods that have to stay last, and before them
		a.heldUntil.Compare(b.heldUntil),                      // held pods, so that they take the turn of no other
		a.refusal.until().Compare(b.refusal.until()),          // refused pods last, by when they may be tried again
		cmp.Compare(rank(a.settled), rank(b.settled)),         // so that the others delay nothing
		cmp.Compare(rank(!a.ready), rank(!b.ready)),           // first those that serve nobody
		cmp.Compare(a.wait.images, b.wait.images),             // there, then late, then awaited
		a.readyTransition.Compare(b.readyTransition),          // first those that have been Ready for longest
		cmp.Compare(a.node, b.node),
	)
}

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

// choose decides which candidates are deleted and what the others wait for.
func (pl *planner) choose() {
	slices.SortFunc(pl.candidates, order)
	allowed := pl.old - pl.in.Options.Partition.Of(len(pl.nodes))
	for _, c := range pl.candidates {
		switch {
		case pl.in.Options.Paused:
			pl.setState(c.node, c.pod, HeldByPause, c.unavailable)
		case pl.plan.Breaker.Holds():
			pl.setState(c.node, c.pod, HeldByBreaker, c.unavailable)
		case len(pl.plan.Lacking) > 0 && pl.in.Options.Continue != pl.in.Revision:
			pl.wait(c, pl.plan.Lacks())
		case allowed <= 0:
			pl.setState(c.node, c.pod, HeldByPartition, c.unavailable)
		case c.stays != "":
			allowed--
			pl.setState(c.node, c.pod, HeldByOwner, with(c.stays, c.unavailable))
		case !c.heldUntil.IsZero():
			allowed--
			pl.keep(c)
		default:
			allowed--
			pl.admit(c)
		}
	}
}

// admit deletes the candidate's pod if it may go now.
func (pl *planner) admit(c candidate) {
	switch {
	case !c.settled:
		if c.settles.After(pl.in.Now) { // else its taints have to go, which is an event
			pl.plan.wakeAt(c.settles)
		}
		pl.wait(c, "node became Ready a moment ago")
	case c.ready && c.wait.images == imagesAwaited:
		pl.plan.wakeAt(c.wait.until)
		n := pl.wait(c, c.wait.reason)
		n.AwaitsImages = n.State == Pending
	case c.refusal != nil && pl.in.Now.Before(c.refusal.Until):
		pl.plan.wakeAt(c.refusal.Until)
		pl.wait(c, "")
	case !pl.canDelete(c):
		pl.wait(c, "")
	case len(pl.plan.Delete) == Burst:
		pl.plan.wakeAt(pl.in.Now)
		pl.wait(c, "")
	default:
		pl.replace(c)
	}
}

// canDelete reports whether the maximum lets c's pod be deleted. A pod that is not Ready may
// always be. A pod that is unavailable because it has been Ready for too short a time adds
// nothing to the count; but after a restart, when this holds for every pod, only as many of
// them may go as if they were available.
func (pl *planner) canDelete(c candidate) bool {
	switch {
	case !c.ready:
		return true
	case c.unavailable == "":
		return pl.plan.Unavailable < pl.plan.Max
	default:
		return pl.plan.Unavailable <= pl.plan.Max
	}
}

// wait records that the candidate keeps its pod. The result may be changed until the next
// call.
func (pl *planner) wait(c candidate, reason string) *NodeStatus {
	state := Pending
	if c.unavailable != "" {
		state, reason = Unavailable, c.unavailable
	}
	if c.refusal.named() {
		reason = c.refusal.reason()
	}
	n := pl.setState(c.node, c.pod, state, reason)
	n.Refused = c.refusal.named()
	return n
}

func (pl *planner) replace(c candidate) {
	reason := "its turn has come"
	if c.wait.images == imagesLate {
		reason += ", though " + c.wait.reason
	}
	switch {
	case !c.ready:
		reason = "it serves nobody: " + c.unavailable
	case c.unavailable == "":
		pl.plan.Unavailable++
	}
	held := pl.overstays(c.pod)
	if held != "" {
		reason += ", though " + held
	}
	pl.plan.Delete = append(pl.plan.Delete, Deletion{Pod: c.pod, NotReady: !c.ready, Reason: reason, Held: held, Unchanged: pl.in.Options.Policy.InPlace, unavailable: c.unavailable})
	pl.setState(c.node, nil, Unavailable, "its old pod is replaced now")
}
