package progress

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/workload"
)

// Limits of one line; --nodes shows all.
const (
	maxNames   = 5
	maxReasons = 3
)

// name is what distinguishes n from the others in a line: its node, or its pod in a StatefulSet.
func (n Node) name(r *Report) string {
	if r.Kind == workload.StatefulSet {
		return n.Pod
	}
	return n.Node
}

// names lists at most maxNames nodes.
func names(r *Report, nodes []Node) string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.name(r))
	}
	return first(out, maxNames)
}

// first joins the first n of a list, and counts the others.
func first(list []string, n int) string {
	s := strings.Join(list[:min(len(list), n)], ", ")
	if more := len(list) - n; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

func byName(r *Report, nodes []Node) string { return names(r, nodes) }

// byReason lists the nodes of each reason, the most frequent reason first.
func byReason(r *Report, nodes []Node) string {
	groups := map[string][]Node{}
	var reasons []string // in the order of the nodes
	for _, n := range nodes {
		if groups[n.Reason] == nil {
			reasons = append(reasons, n.Reason)
		}
		groups[n.Reason] = append(groups[n.Reason], n)
	}
	slices.SortStableFunc(reasons, func(a, b string) int { return cmp.Compare(len(groups[b]), len(groups[a])) })
	var out []string
	for _, reason := range reasons[:min(len(reasons), maxReasons)] {
		s := names(r, groups[reason])
		if reason != "" {
			s = reason + " (" + s + ")"
		}
		out = append(out, s)
	}
	if more := len(reasons) - maxReasons; more > 0 {
		out = append(out, fmt.Sprintf("%d more reasons, see --nodes", more))
	}
	return strings.Join(out, "; ")
}

// byLimit describes what pending nodes wait for: their turn, or their images.
func byLimit(r *Report, nodes []Node) string {
	if r.Limits == nil {
		return ""
	}
	limit := fmt.Sprintf("%d of at most %d unavailable (%s of %d Ready nodes)",
		r.Limits.UnavailableNodes, r.Limits.MaxUnavailableNodes, r.Limits.MaxUnavailable, r.Limits.ReadyNodes)
	switch n := awaitImages(nodes); n {
	case 0:
		return limit
	case len(nodes):
		return "until their images are there"
	default:
		return fmt.Sprintf("%d until their images are there; %s", n, limit)
	}
}

// awaitImages counts the nodes whose old pod is kept for the images of the new one.
func awaitImages(nodes []Node) int {
	count := 0
	for _, n := range nodes {
		if n.AwaitsImages {
			count++
		}
	}
	return count
}

// byHolder describes what holds the nodes.
func byHolder(_ *Report, nodes []Node) string {
	counts := map[rollout.State]int{}
	for _, n := range nodes {
		counts[n.State]++
	}
	var out []string
	for _, h := range []struct {
		state rollout.State
		words string
	}{
		{rollout.HeldByBreaker, "by the circuit breaker"},
		{rollout.HeldByPause, "by the pause"},
		{rollout.HeldByOwner, "by the owners of the nodes"},
		{rollout.HeldByPartition, "by annotation " + rollout.PartitionAnnotation},
		{rollout.HeldBySelector, "by annotation " + rollout.NodeSelectorAnnotation},
		{rollout.HeldByPlacement, "by placement"},
		{rollout.RolledBack, "by owners who went back"},
	} {
		switch n := counts[h.state]; n {
		case 0:
		case len(nodes):
			return h.words
		default:
			out = append(out, fmt.Sprintf("%d %s", n, h.words))
		}
	}
	return strings.Join(out, ", ")
}
