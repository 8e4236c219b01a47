package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/api/placement"
)

const (
	// NodeSettle is how long a node must have been Ready before its pod is deleted.
	// A kubelet reports its status every 10 s (nodeStatusUpdateFrequency), so one that
	// flaps is noticed.
	NodeSettle = 10 * time.Second
	// Burst is how many pods a Plan deletes at most. It is what the DaemonSet
	// controller creates and deletes at once (BurstReplicas).
	Burst = 250
)

// Input is what NewPlan reads. It changes nothing but Observations.
type Input struct {
	// DaemonSet is read for its pod template's scheduling and minReadySeconds.
	DaemonSet *appsv1.DaemonSet
	// Options are those of its annotations.
	Options Options
	// Revision is the target, as the label controller-revision-hash has it.
	Revision string
	// Nodes are all nodes of the cluster, Pods all pods that DaemonSet controls.
	Nodes []*corev1.Node
	Pods  []*corev1.Pod
	// Deleted reports whether the deletion of a pod has been sent, though Pods may
	// not show it yet; nil is none.
	Deleted func(types.UID) bool
	// Refused returns why the last try to delete a pod failed, nil if it did not; the
	// function nil is no pod. RefusedInARow counts the refusals, of any pods, since a pod
	// was deleted.
	Refused       func(types.UID) *Refusal
	RefusedInARow int
	// RolledBack reports whether the owner of a pod that is not of the target wants an earlier revision,
	// which the pod has or is about to get; nil is no pod.
	RolledBack func(*corev1.Pod) bool
	// Restarting returns until when a pod that is Ready counts as unavailable all the same, zero if it does
	// not: kubelet restarts its containers, and has yet to report it. nil is no pod.
	Restarting func(*corev1.Pod) time.Time
	// Unsettled returns why a pod must not be deleted because of what its node did while the cloud was away, "" if it may be; nil is
	// no pod.
	Unsettled func(*corev1.Pod) string
	// LackingWhy is why Kubernetes makes no pods, "" if that is not known.
	LackingWhy string
	// Observations is what earlier calls saw. NewPlan brings it up to date.
	Observations *Observations
	// Halted is the revision for which the circuit breaker is open according to the
	// condition of DaemonSet; see HaltedRevision. It counts in the first call with
	// Observations.
	Halted string
	Now    time.Time

	// Timing is for tests that cannot wait; zero values are the constants.
	Timing Timing
}

// Timing replaces constants of this package where it is not zero.
type Timing struct {
	NodeSettle    time.Duration
	BreakerWindow time.Duration
}

func (in *Input) settle() time.Duration { return cmp.Or(in.Timing.NodeSettle, NodeSettle) }

func (in *Input) breakerWindow() time.Duration { return cmp.Or(in.Timing.BreakerWindow, BreakerWindow) }

// NewPlan records the observations of in and decides what to do next. Called again with the
// same input, and the deletions it asked for in Deleted, it asks for no more of
// them.
func NewPlan(in Input) Plan {
	in.Observations.observe(&in)
	rule := placement.New(placement.RuleOf(&in.DaemonSet.Spec.Template.Spec))
	nodes, misplaced := in.nodePods(rule)
	pl := planner{in: &in, placement: rule, nodes: nodes, prepulls: api.NewPrepulls(in.Revision)}
	pl.plan.Revision, pl.plan.RefusedInARow, pl.plan.LackingWhy = in.Revision, in.RefusedInARow, in.LackingWhy

	pl.classify()
	for i := range misplaced {
		p := &misplaced[i]
		pod, _ := p.only()
		pl.setState(p.node.Name, pod, HeldByPlacement, rule.Obstacle(p.node))
	}
	pl.observeMissing()
	pl.plan.Max = in.Options.MaxUnavailable.Of(pl.plan.Ready)

	b := &in.Observations.breaker
	b.setTarget(in.Revision, in.Halted)
	b.observe(pl.nodes, &in)
	pl.plan.Breaker = b.evaluate(pl.nodes, pl.plan.Max, pl.old, &in)
	pl.wakeForBreaker()

	pl.choose()
	pl.plan.Pulls = pl.pulls()
	return pl.finish()
}

// outdated reports whether pod has to be replaced by one of the target.
func (in *Input) outdated(pod *corev1.Pod) bool {
	return revisionOf(pod) != in.Revision && !in.rolledBack(pod)
}

func (in *Input) rolledBack(pod *corev1.Pod) bool {
	return in.RolledBack != nil && revisionOf(pod) != in.Revision && in.RolledBack(pod)
}

func (in *Input) unsettled(pod *corev1.Pod) string {
	if in.Unsettled == nil {
		return ""
	}
	return in.Unsettled(pod)
}

// planner makes one Plan.
type planner struct {
	in         *Input
	placement  placement.Placement
	nodes      []nodePods
	prepulls   *api.Prepulls
	plan       Plan
	candidates []candidate
	old        int // live pods of other revisions, wherever they are
}

// candidate is an old pod that is alone on a Ready node.
type candidate struct {
	node            string
	pod             *corev1.Pod
	ready           bool      // Ready, if only for a moment
	unavailable     string    // why it is not available; "" if it is
	settled         bool      // its node has been Ready for long enough, and can get the next pod
	settles         time.Time // when its node has been Ready for long enough
	readyTransition time.Time // to Ready, by the clock of its node: for the order only
	stays           string    // why, whatever its turn: Input.Unsettled
	heldUntil       time.Time // zero: its owner does not hold it
	wait            imageWait
	refusal         *Refusal
}

// classify puts every node without a candidate into its state, and collects the candidates.
func (pl *planner) classify() {
	for i := range pl.nodes {
		p := &pl.nodes[i]
		for _, pod := range p.live {
			if pl.in.outdated(pod) {
				pl.old++
			}
		}
		if !p.observed.ready() {
			pl.classifyNotReady(p)
			continue
		}
		pl.plan.Ready++
		pl.classifyReady(p)
	}
}

func (pl *planner) classifyNotReady(p *nodePods) {
	if pod, ok := p.at(pl.in.Revision); ok {
		pl.setState(p.node.Name, pod, Updated, "")
		return
	}
	reason := "node is not Ready"
	pod, single := p.only()
	switch {
	case !single:
		reason += ", " + p.conflict()
	case !scheduled(pod):
		reason += ", " + unscheduled(pod)
	case pl.in.rolledBack(pod):
		pl.setState(p.node.Name, pod, RolledBack, reason)
		return
	}
	pl.setState(p.node.Name, pod, WaitingNotReady, reason)
}

func (pl *planner) classifyReady(p *nodePods) {
	pod, single := p.only()
	if !single {
		pl.plan.Unavailable++
		pl.setState(p.node.Name, nil, Unavailable, pl.in.conflictReason(p))
		return
	}
	why := pl.unavailable(pod)
	if why != "" {
		pl.plan.Unavailable++
	}
	switch {
	case pl.in.rolledBack(pod):
		pl.setState(p.node.Name, pod, RolledBack, why)
	case pl.in.outdated(pod) && !pl.selected(p.node):
		pl.setState(p.node.Name, pod, HeldBySelector, why)
	case pl.in.outdated(pod):
		pl.candidates = append(pl.candidates, pl.candidate(p, pod, why))
	case why == "":
		pl.setState(p.node.Name, pod, Updated, "")
	default:
		pl.setState(p.node.Name, pod, Unavailable, why)
	}
}

func (pl *planner) selected(node *corev1.Node) bool {
	s := pl.in.Options.NodeSelector
	return s == nil || s.Matches(labels.Set(node.Labels))
}

func (pl *planner) candidate(p *nodePods, pod *corev1.Pod, unavailable string) candidate {
	observed := pl.in.Observations.pods[pod.UID]
	return candidate{
		node: p.node.Name, pod: pod,
		ready: observed.ready(), unavailable: unavailable, readyTransition: observed.transitionTime,
		settled: p.observed.readyFor(pl.in.Now) >= pl.in.settle() && pl.placement.CanSchedule(p.node),
		settles: p.observed.since.Add(pl.in.settle()),
		stays:   pl.in.unsettled(pod), heldUntil: pl.heldUntil(pod), wait: pl.imagesFor(p, pod), refusal: pl.in.refusal(pod),
	}
}

// unavailable returns why pod is not available, "" if it has been seen Ready for long enough.
func (pl *planner) unavailable(pod *corev1.Pod) string {
	observed := pl.in.Observations.pods[pod.UID]
	if !observed.ready() {
		return notReadyReason(pod)
	}
	if pl.in.Restarting != nil {
		if until := pl.in.Restarting(pod); !until.IsZero() {
			pl.plan.wakeAt(until)
			return "its containers restart with other images"
		}
	}
	minReady := time.Duration(pl.in.DaemonSet.Spec.MinReadySeconds) * time.Second
	if observed.readyFor(pl.in.Now) < minReady {
		pl.plan.wakeAt(observed.since.Add(minReady))
		return fmt.Sprintf("Ready for less than minReadySeconds, %v", minReady)
	}
	return ""
}

// setState records a node's state. pod may be nil. The result may be changed until the next
// call.
func (pl *planner) setState(node string, pod *corev1.Pod, state State, reason string) *NodeStatus {
	n := NodeStatus{Name: node, State: state, Reason: reason}
	if pod != nil {
		n.Pod, n.Revision = pod.Name, revisionOf(pod)
	}
	pl.plan.Nodes = append(pl.plan.Nodes, n)
	return &pl.plan.Nodes[len(pl.plan.Nodes)-1]
}

// wakeForBreaker asks for a call once lost nodes will have been Ready for long enough.
func (pl *planner) wakeForBreaker() {
	if !pl.plan.Breaker.Open {
		return
	}
	for _, name := range pl.plan.Breaker.Lost {
		if observed := pl.in.Observations.nodes[name]; observed.ready() {
			pl.plan.wakeAt(observed.since.Add(pl.in.settle()))
		}
	}
}

// finish sorts the nodes and counts them.
func (pl *planner) finish() Plan {
	slices.SortFunc(pl.plan.Nodes, func(a, b NodeStatus) int { return cmp.Compare(a.Name, b.Name) })
	pl.plan.Counts = map[State]int{}
	for i := range pl.plan.Nodes {
		n := &pl.plan.Nodes[i]
		pl.plan.Counts[n.State]++
		if n.AwaitsImages {
			pl.plan.AwaitImages++
		}
		if n.Refused {
			pl.plan.Refused++
		}
	}
	return pl.plan
}
