package progress

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
)

// line is one line of the text, for one or more states.
type line struct {
	mark   byte // stands for a node of these states in the bar
	label  string
	states []rollout.State
	detail func(r *Report, groups []rollout.Group) string
}

func linesFor(strategy string) []line {
	all := []line{
		{'#', "updated", []rollout.State{rollout.Updated}, nil},
		{'!', "unavailable", []rollout.State{rollout.Unavailable}, byReason},
	}
	if strategy == daemonset.OTA.String() {
		return append(all,
			line{'.', "for owners", []rollout.State{rollout.WaitingForOwner}, byReason},
			line{'=', "held", []rollout.State{rollout.HeldByPlacement, rollout.RolledBack}, byReason},
		)
	}
	return append(all,
		line{'.', "pending", []rollout.State{rollout.Pending}, byLimit},
		line{'-', "not ready", []rollout.State{rollout.WaitingNotReady}, byName},
		line{'=', "held", []rollout.State{rollout.HeldByOwner, rollout.HeldBySelector, rollout.HeldByPartition, rollout.HeldByPause, rollout.HeldByBreaker, rollout.HeldByPlacement, rollout.RolledBack}, byHolder},
	)
}

// maxMissingLines is how many nodes that lack their pod have a line each.
const maxMissingLines = 3

// text is the report for people, with a bar for a terminal of that width; 0: no terminal, and
// no bar.
func (r *Report) text(width int) string {
	var out strings.Builder
	for i, m := range r.Missing {
		if i == maxMissingLines {
			fmt.Fprintf(&out, "MISSING on %d more nodes\n", len(r.Missing)-maxMissingLines)
			break
		}
		out.WriteString(cli.OneLine(fmt.Sprintf("MISSING on %s since %s: %s", m.Node, m.Since.UTC().Format(time.RFC3339), m.Why)) + "\n")
	}
	fmt.Fprintf(&out, "%s.apps/%s in %s: %s", r.Kind.Lower(), r.Name, r.Namespace, r.Strategy)
	if r.Revision != "" {
		fmt.Fprintf(&out, " to revision %s", r.Revision)
	}
	out.WriteString("\n")
	lines := linesFor(r.Strategy)
	if r.Revision != "" {
		if width > 0 {
			out.WriteString(r.bar(lines, width) + "\n")
		}
		for _, l := range lines {
			out.WriteString(cli.OneLine(r.line(l, width > 0)) + "\n")
		}
	}
	out.WriteString(r.ownerLines(width))
	if r.State == Unknown {
		out.WriteString(cli.OneLine(r.Message) + "\n")
	}
	out.WriteString(cli.OneLine(fmt.Sprintf("%s: %s", r.State, r.Advice)) + "\n")
	for _, w := range r.Warnings {
		out.WriteString(cli.OneLine("warning: "+w) + "\n")
	}
	return out.String()
}

// line counts the nodes in l's states, and names them or the reason.
func (r *Report) line(l line, marked bool) string {
	count := r.count(l.states)
	out := countLine(l.label, count)
	if marked {
		out = "  " + string(l.mark) + " " + out
	}
	if count > 0 && l.detail != nil {
		if detail := l.detail(r, r.in(l.states)); detail != "" {
			out += "  " + detail
		}
	} else if l.states[0] == rollout.Updated {
		out += fmt.Sprintf("  of %d", r.total())
	}
	return out
}

func countLine(label string, count int) string { return fmt.Sprintf("%-12s %5d", label, count) }

func (r *Report) in(states []rollout.State) (groups []rollout.Group) {
	for _, g := range r.groups {
		if slices.Contains(states, g.State) {
			groups = append(groups, g)
		}
	}
	return groups
}

func (r *Report) count(states []rollout.State) (n int) {
	for _, state := range states {
		n += r.Counts[state]
	}
	return n
}

// Sizes of the bar, in columns.
const (
	maxBar = 60
	minBar = 10
	// barFrame is what stands around the bar: indentation, brackets, percentage.
	barFrame = len("  [] 100%")
)

// bar draws the share of each line, at least one mark for a line that has any node. It shows
// 100 % only when all nodes are updated.
func (r *Report) bar(lines []line, width int) string {
	width = min(maxBar, max(minBar, width-barFrame))
	total := r.total()
	if total == 0 {
		return "  [" + strings.Repeat(" ", width) + "]"
	}
	counts := make([]int, len(lines))
	for i, l := range lines {
		counts[i] = r.count(l.states)
	}
	var out strings.Builder
	for i, n := range shares(counts, width) {
		out.WriteString(strings.Repeat(string(lines[i].mark), n))
	}
	return fmt.Sprintf("  [%s] %3d%%", out.String(), counts[0]*100/total)
}

// shares divides width in proportion to counts, rounded up in favour of the smaller ones: the largest gets the rest.
func shares(counts []int, width int) []int {
	total := 0
	for _, n := range counts {
		total += n
	}
	out, largest := make([]int, len(counts)), slices.Index(counts, slices.Max(counts))
	left := width
	for i, n := range counts {
		if i != largest {
			out[i] = (n*width + total - 1) / total
			left -= out[i]
		}
	}
	out[largest] = left
	return out
}
