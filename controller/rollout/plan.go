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

	"github.com/edgehub-io/edgehub/ota/upgrade"
)

const (
	// NodeSettle is how long a node must have been Ready before its pod is deleted.
	// A kubelet says how it is every 10 s (nodeStatusUpdateFrequency), so one that
	// cannot make up its mind is caught changing it.
	NodeSettle = 10 * time.Second
	// Burst is how many pods a Plan deletes at most. It is what the DaemonSet
	// controller creates and deletes at once (BurstReplicas).
	Burst = 250
)

// Input is what Make looks at. Nothing in it is changed but Seen.
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
	// Deleted tells whether the deletion of a pod has been sent, though Pods may
	// not show it yet; nil is none.
	Deleted func(types.UID) bool
	// Refused returns what kept a pod from being deleted when that was last tried, nil
	// if nothing did; the function nil is no pod. RefusedInARow counts the refusals, of
	// whichever pods, since one was deleted.
	Refused       func(types.UID) *Refusal
	RefusedInARow int
	// Seen is what earlier calls saw. Make brings it up to date.
	Seen *Sightings
	// Halted is the revision for which the condition of DaemonSet says that the
	// circuit breaker is open; see HaltedRevision. It counts in the first call with
	// Seen.
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

func (in *Input) minReady() time.Duration {
	return time.Duration(in.DaemonSet.Spec.MinReadySeconds) * time.Second
}

// Make takes in what in shows and says what to do next. Called again with the
// same input, and the deletions it asked for in Deleted, it asks for no more of
// them.
func Make(in Input) Plan {
	in.Seen.see(&in)
	where := NewPlacement(&in.DaemonSet.Spec.Template.Spec)
	m := maker{in: &in, where: where, places: in.places(where), prepulls: upgrade.NewPrepulls(in.Revision)}
	m.plan.Revision, m.plan.RefusedInARow = in.Revision, in.RefusedInARow

	m.count()
	m.plan.Max = in.Options.MaxUnavailable.Of(m.plan.Ready)

	b := &in.Seen.breaker
	b.aim(in.Revision, in.Halted)
	b.see(m.places, &in)
	m.plan.Breaker = b.judge(m.places, m.plan.Max, m.old, &in)
	m.wakeForBreaker()

	m.choose()
	m.plan.Pulls = m.pulls()
	return m.sum()
}

// maker makes one Plan.
type maker struct {
	in         *Input
	where      Placement
	places     []place
	prepulls   *upgrade.Prepulls
	plan       Plan
	candidates []candidate
	old        int // live pods of other revisions, wherever they are
}

// candidate is an old pod that is alone on a Ready node.
type candidate struct {
	node    string
	pod     *corev1.Pod
	ready   bool // Ready, if only for a moment
	avail   bool
	settled bool // its node may be touched
	settles time.Time
	turned  time.Time // Ready, in the words of its node: for the order only
	trouble string    // why it is not available
	wait    imageWait
	refusal *Refusal
}

// count puts every place but those of candidates into its state.
func (m *maker) count() {
	for i := range m.places {
		p := &m.places[i]
		for _, pod := range p.live {
			if revisionOf(pod) != m.in.Revision {
				m.old++
			}
		}
		if !p.seen.ready() {
			m.countNotReady(p)
			continue
		}
		m.plan.Ready++
		m.countReady(p)
	}
}

func (m *maker) countNotReady(p *place) {
	if pod, ok := p.at(m.in.Revision); ok {
		m.put(p.node.Name, pod, Updated, "")
		return
	}
	reason := "node is not Ready"
	pod, single := p.only()
	switch {
	case !single:
		reason += ", " + p.crowd()
	case !scheduled(pod):
		reason += ", " + unscheduled(pod)
	}
	m.put(p.node.Name, pod, WaitingNotReady, reason)
}

func (m *maker) countReady(p *place) {
	pod, single := p.only()
	if !single {
		m.plan.Unavailable++
		m.put(p.node.Name, nil, Unavailable, m.in.leaving(p))
		return
	}
	avail, why := m.available(pod)
	if !avail {
		m.plan.Unavailable++
	}
	switch {
	case revisionOf(pod) != m.in.Revision && !m.selected(p.node):
		m.put(p.node.Name, pod, HeldBySelector, why)
	case revisionOf(pod) != m.in.Revision:
		m.candidates = append(m.candidates, m.candidate(p, pod, avail, why))
	case avail:
		m.put(p.node.Name, pod, Updated, "")
	default:
		m.put(p.node.Name, pod, Unavailable, why)
	}
}

func (m *maker) selected(node *corev1.Node) bool {
	s := m.in.Options.NodeSelector
	return s == nil || s.Matches(labels.Set(node.Labels))
}

func (m *maker) candidate(p *place, pod *corev1.Pod, avail bool, why string) candidate {
	seen := m.in.Seen.pods[pod.UID]
	return candidate{
		node: p.node.Name, pod: pod,
		ready: seen.ready(), avail: avail,
		settled: p.seen.readyFor(m.in.Now) >= m.in.settle() && m.where.gets(p.node),
		settles: p.seen.since.Add(m.in.settle()),
		turned:  seen.written, trouble: why,
		wait: m.imagesFor(p, pod), refusal: m.in.refusal(pod),
	}
}

// available tells whether pod has been seen Ready for long enough, or why not.
func (m *maker) available(pod *corev1.Pod) (bool, string) {
	seen := m.in.Seen.pods[pod.UID]
	if !seen.ready() {
		return false, trouble(pod)
	}
	if is := seen.readyFor(m.in.Now); is < m.in.minReady() {
		m.plan.wakeAt(seen.since.Add(m.in.minReady()))
		return false, fmt.Sprintf("Ready for less than minReadySeconds, %v", m.in.minReady())
	}
	return true, ""
}

// put records a node's state. pod may be nil.
func (m *maker) put(node string, pod *corev1.Pod, state State, reason string) {
	n := NodeStatus{Name: node, State: state, Reason: reason}
	if pod != nil {
		n.Pod, n.Revision = pod.Name, revisionOf(pod)
	}
	m.plan.Nodes = append(m.plan.Nodes, n)
}

// wakeForBreaker asks for a call when lost nodes have been Ready for long enough.
func (m *maker) wakeForBreaker() {
	if !m.plan.Breaker.Open {
		return
	}
	for _, name := range m.plan.Breaker.Lost {
		if seen := m.in.Seen.nodes[name]; seen.ready() {
			m.plan.wakeAt(seen.since.Add(m.in.settle()))
		}
	}
}

// sum brings the plan into order.
func (m *maker) sum() Plan {
	slices.SortFunc(m.plan.Nodes, func(a, b NodeStatus) int { return cmp.Compare(a.Name, b.Name) })
	m.plan.Counts = map[State]int{}
	for i := range m.plan.Nodes {
		m.plan.Counts[m.plan.Nodes[i].State]++
		if m.plan.Nodes[i].AwaitsImages {
			m.plan.AwaitImages++
		}
		if m.plan.Nodes[i].Refused {
			m.plan.Refused++
		}
	}
	return m.plan
}
