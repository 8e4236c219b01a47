package rollout

import (
	"fmt"
	"slices"
	"time"
)

// LackGrace is how long a node may be without any pod of the workload until no other pod is deleted.
// Kubernetes makes a pod within seconds of the deletion of the one before.
const LackGrace = 30 * time.Second

// observeLacking records since when Ready nodes that should get a pod have had none, and returns those
// that have had none for LackGrace.
func (pl *planner) observeLacking() {
	obs, since := pl.in.Observations, map[string]time.Time{}
	for i := range pl.nodes {
		p := &pl.nodes[i]
		if len(p.live)+len(p.terminating) > 0 || !p.observed.ready() || !pl.placement.canSchedule(p.node) {
			continue
		}
		from, known := obs.lacking[p.node.Name]
		if !known {
			from = pl.in.Now
		}
		since[p.node.Name] = from
		if end := from.Add(LackGrace); pl.in.Now.Before(end) {
			pl.plan.wakeAt(end)
		} else {
			pl.plan.Lacking = append(pl.plan.Lacking, p.node.Name)
		}
	}
	obs.lacking = since
	slices.Sort(pl.plan.Lacking)
}

// Lacks says which nodes Kubernetes makes no pod for; "" if there are none.
func (p *Plan) Lacks() string {
	if len(p.Lacking) == 0 {
		return ""
	}
	names := p.Lacking[:min(len(p.Lacking), maxNamed)]
	return fmt.Sprintf("Kubernetes has made no pod for %v on %s", LackGrace, listed(names, len(p.Lacking)))
}
