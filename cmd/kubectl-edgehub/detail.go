package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/edgehub-io/edgehub/controller/rollout"
)

// Limits of one line; --nodes shows all.
const (
	maxNames   = 5
	maxReasons = 3
)

// names lists at most maxNames nodes.
func names(nodes []nodeReport) string {
	var out []string
	for _, n := range nodes[:min(len(nodes), maxNames)] {
		out = append(out, n.Node)
	}
	s := strings.Join(out, ", ")
	if more := len(nodes) - maxNames; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

func byName(_ *report, nodes []nodeReport) string { return names(nodes) }

// byReason lists the nodes of each reason, the most frequent reason first.
func byReason(_ *report, nodes []nodeReport) string {
	groups := map[string][]nodeReport{}
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
		s := names(groups[reason])
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
func byLimit(r *report, nodes []nodeReport) string {
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
func awaitImages(nodes []nodeReport) int {
	count := 0
	for _, n := range nodes {
		if n.AwaitsImages {
			count++
		}
	}
	return count
}

// byHolder describes what holds the nodes.
func byHolder(_ *report, nodes []nodeReport) string {
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
		{rollout.HeldByPartition, "by annotation " + rollout.PartitionAnnotation},
		{rollout.HeldBySelector, "by annotation " + rollout.NodeSelectorAnnotation},
		{rollout.HeldByPlacement, "by placement"},
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
