package progress

import (
	"fmt"
	"strings"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Limits of one line; --nodes shows all.
const (
	maxNames   = 5
	maxReasons = 3
)

// name is what distinguishes n from the others in a line: its node, or its pod in a StatefulSet.
func (n Node) name(r *Report) string {
	if r.members() == "pod" {
		return n.Pod
	}
	return n.Node
}

func names(g rollout.Group) string { return cli.First(g.Nodes, maxNames, g.Count) }

func byName(_ *Report, groups []rollout.Group) string {
	var all rollout.Group
	for _, g := range groups {
		all.Nodes, all.Count = append(all.Nodes, g.Nodes...), all.Count+g.Count
	}
	return names(all)
}

// byReason lists the nodes of each reason, the most frequent reason first.
func byReason(_ *Report, groups []rollout.Group) string {
	var out []string
	for _, g := range groups[:min(len(groups), maxReasons)] {
		s := names(g)
		if g.Reason != "" {
			s = g.Reason + " (" + s + ")"
		}
		out = append(out, s)
	}
	if more := len(groups) - maxReasons; more > 0 {
		out = append(out, fmt.Sprintf("%d more reasons, see --nodes", more))
	}
	return strings.Join(out, "; ")
}

// byLimit describes what pending nodes wait for: their turn, or their images.
func byLimit(r *Report, groups []rollout.Group) string {
	awaiting, pending := 0, 0
	for _, g := range groups {
		pending += g.Count
		if g.AwaitsImages {
			awaiting += g.Count
		}
	}
	switch {
	case awaiting == pending:
		return "until their images are there"
	case r.Limits == nil:
		return ""
	}
	limit := fmt.Sprintf("%d of at most %d unavailable (%s of %d Ready nodes)",
		r.Limits.UnavailableNodes, r.Limits.MaxUnavailableNodes, r.Limits.MaxUnavailable, r.Limits.ReadyNodes)
	if awaiting == 0 {
		return limit
	}
	return fmt.Sprintf("%d until their images are there; %s", awaiting, limit)
}

// byHolder describes what holds the nodes.
func byHolder(r *Report, _ []rollout.Group) string {
	var out []string
	total := 0
	for _, h := range holders {
		total += r.Counts[h.state]
	}
	for _, h := range holders {
		switch n := r.Counts[h.state]; n {
		case 0:
		case total:
			return h.words
		default:
			out = append(out, fmt.Sprintf("%d %s", n, h.words))
		}
	}
	return strings.Join(out, ", ")
}

// holders are the states of nodes that something holds.
var holders = []struct {
	state rollout.State
	words string
}{
	{rollout.HeldByBreaker, "by the circuit breaker"},
	{rollout.HeldByPause, "by the pause"},
	{rollout.HeldByOwner, "by the owners of the nodes"},
	{rollout.HeldByPartition, "by annotation " + api.PartitionAnnotation},
	{rollout.HeldBySelector, "by annotation " + api.NodeSelectorAnnotation},
	{rollout.HeldByPlacement, "by placement"},
	{rollout.RolledBack, "by owners who went back"},
}
