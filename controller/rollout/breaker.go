package rollout

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// BreakerWindow is how long after the start of its new pod a node that goes
// NotReady counts against the new revision. The control plane notices after 50 s
// at the earliest (--node-monitor-grace-period), and a leak takes a while.
const BreakerWindow = 5 * time.Minute

// minLost is how many lost nodes it takes at least: one may have died of anything.
const minLost = 2

// Breaker is the state of the circuit breaker in a Plan.
type Breaker struct {
	// Open is true while too many nodes with the target revision are lost.
	Open bool
	// Overridden is true when Open is and api.ContinueAnnotation names this revision.
	Overridden bool
	// Lost are the nodes that went NotReady soon after they got the target
	// revision and have not been Ready for NodeSettle since, by name. Updated is
	// how many nodes got it, the lost ones among them.
	Lost    []string
	Updated int
}

// Holds reports whether the breaker keeps pods from being deleted.
func (b Breaker) Holds() bool { return b.Open && !b.Overridden }

// breaker is the part of Observations that Breaker comes from.
type breaker struct {
	revision string
	open     bool
	lost     sets.Set[string]
	// inherited is true in the first call after another process left it open.
	inherited bool
}

// setTarget forgets everything when the target changes. At first, when halted names the
// target, the breaker is open as another process left it.
func (b *breaker) setTarget(revision, halted string) {
	if b.revision == revision {
		return
	}
	inherited := b.revision == "" && halted == revision
	*b = breaker{revision: revision, open: inherited, inherited: inherited}
}

// observe updates the lost nodes.
func (b *breaker) observe(nodes []nodePods, in *Input) {
	lost := sets.Set[string]{}
	for i := range nodes {
		if b.isLost(&nodes[i], in) {
			lost.Insert(nodes[i].node.Name)
		}
	}
	b.lost = lost // without nodes that were removed from the cluster
	b.inherited = false
}

func (b *breaker) isLost(p *nodePods, in *Input) bool {
	if p.observed.ready() {
		return b.lost.Has(p.node.Name) && p.observed.readyFor(in.Now) < in.settle()
	}
	if b.lost.Has(p.node.Name) {
		return true
	}
	pod, ok := p.at(in.Revision)
	if !ok {
		return false
	}
	if p.observed.before == "" {
		return b.inherited || inDoubt(p, pod, in)
	}
	start := in.Observations.pods[pod.UID].started
	return p.observed.before == corev1.ConditionTrue && (start.IsZero() || in.Now.Sub(start) <= in.breakerWindow())
}

// inDoubt reports whether a node that was NotReady at the first look may have become so
// within the window. The window is twice as long, since of its pod's start only the creation
// is known. The control plane writes Unknown, and its time counts; the kubelet writes False,
// and its time may be anything.
func inDoubt(p *nodePods, pod *corev1.Pod, in *Input) bool {
	var (
		created = pod.CreationTimestamp.Time
		end     = created.Add(2 * in.breakerWindow())
		went    = p.observed.transitionTime
	)
	within := !went.Before(created) && !went.After(end)
	return within || (p.observed.status == corev1.ConditionFalse && !in.Now.After(end))
}

// evaluate opens or closes the breaker. Without old pods there is nothing to keep.
func (b *breaker) evaluate(nodes []nodePods, limit, old int, in *Input) Breaker {
	updated := 0
	for i := range nodes {
		if _, ok := nodes[i].at(in.Revision); ok || b.lost.Has(nodes[i].node.Name) {
			updated++
		}
	}
	n := len(b.lost)
	switch {
	case n == 0, old == 0:
		b.open = false
	case n >= max(minLost, limit) && 2*n > updated:
		b.open = true
	}
	return Breaker{
		Open:       b.open,
		Overridden: b.open && in.Options.Continue == in.Revision,
		Lost:       sets.List(b.lost),
		Updated:    updated,
	}
}
