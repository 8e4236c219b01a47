package progress

import (
	"fmt"
	"strings"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/workload"
)

// Table has a line for each report, and below it what is wrong.
func Table(reports []*Report) string {
	var (
		rows     [][]string
		problems strings.Builder
		stopped  string // what warns of the controller, the same for all
	)
	problem := func(text string, args ...any) {
		problems.WriteString(cli.OneLine(fmt.Sprintf(text, args...)) + "\n")
	}
	for _, r := range reports {
		rows = append(rows, r.cells())
		if r.State.ExitCode() == ExitHeldUp {
			problem("%s in %s: %s", r.shortName(), r.Namespace, r.Advice)
		}
		for _, w := range r.Warnings {
			if w == r.stopped {
				stopped = w
				continue
			}
			problem("warning: %s in %s: %s", r.shortName(), r.Namespace, w)
		}
	}
	if stopped != "" {
		problem("warning: %s", stopped)
	}
	return cli.Table([]string{"NAMESPACE", "NAME", "STATE", "UPDATED", "UNAVAILABLE", "OWNERS"}, rows, 0) + problems.String()
}

func (r *Report) cells() []string {
	cells := []string{r.Namespace, r.shortName(), string(r.State), "", "", r.countOwners()}
	if r.Revision != "" { // else nothing is known of its nodes
		cells[3], cells[4] = fmt.Sprintf("%d/%d", r.Counts[rollout.Updated], r.total()), fmt.Sprint(r.Counts[rollout.Unavailable])
	}
	return cells
}

// shortName is how a command line names r's workload.
func (r *Report) shortName() string {
	if r.Kind == workload.StatefulSet {
		return "sts/" + r.Name
	}
	return "ds/" + r.Name
}
