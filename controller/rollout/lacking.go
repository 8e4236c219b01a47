package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/ota/api"
)

// LackGrace is how long a node may be without any pod of the workload until no other pod is deleted, and its Node is
// annotated. Kubernetes makes a pod, and the scheduler binds it, within seconds of the deletion of the one before.
const LackGrace = 30 * time.Second

// maxWords is how much of the scheduler's message is repeated: it counts the nodes of the cluster by reason.
const maxWords = 300

// Missing is a Ready node that should get a pod, and has none that it knows of.
type Missing struct {
	Node string
	// Since is when that was first seen, or when Pod was created.
	Since time.Time
	// Pod is the one that waits for the scheduler; nil if Kubernetes has made none.
	Pod *corev1.Pod
}

// Late reports whether it has been missing for LackGrace.
func (m *Missing) Late(now time.Time) bool { return now.Sub(m.Since) >= LackGrace }

// observeMissing records since when Ready nodes that should get a pod have had none, and which have waited too long.
func (pl *planner) observeMissing() {
	obs, since := pl.in.Observations, map[string]time.Time{}
	for i := range pl.nodes {
		p := &pl.nodes[i]
		if !p.observed.ready() || !pl.placement.CanSchedule(p.node) {
			continue
		}
		m := Missing{Node: p.node.Name}
		pod, single := p.only()
		switch {
		case single && !scheduled(pod) && !terminal(pod):
			m.Pod, m.Since = pod, pod.CreationTimestamp.Time
		case single || p.conflict() != noPod:
			continue
		default:
			m.Since = cmp.Or(obs.lacking[m.Node], pl.in.Now)
			since[m.Node] = m.Since
		}
		pl.plan.Missing = append(pl.plan.Missing, m)
		switch {
		case !m.Late(pl.in.Now):
			pl.plan.wakeAt(m.Since.Add(LackGrace))
		case m.Pod == nil:
			pl.plan.Lacking = append(pl.plan.Lacking, m.Node)
		}
	}
	obs.lacking = since
	slices.Sort(pl.plan.Lacking)
}

// Lacks names the nodes for which Kubernetes has created no pod, for messages; "" if there are none.
func (p *Plan) Lacks() string {
	if len(p.Lacking) == 0 {
		return ""
	}
	names := p.Lacking[:min(len(p.Lacking), maxNamed)]
	text := fmt.Sprintf("Kubernetes has made no pod for %v on %s", LackGrace, listed(names, len(p.Lacking)))
	if p.LackingWhy != "" {
		text += " (" + p.LackingWhy + ")"
	}
	return text
}

// Unplaced returns why the scheduler does not bind a pod, in its own words if it has said some.
func Unplaced(pod *corev1.Pod) string {
	c := api.Condition(pod, corev1.PodScheduled)
	if c == nil || c.Message == "" {
		return unscheduled(pod)
	}
	return "the scheduler finds no place for pod " + pod.Name + ": " + daemonset.Truncate(c.Message, maxWords)
}
