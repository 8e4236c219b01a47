package main

import (
	"fmt"

	"github.com/edgehub-io/edgehub/cmd/internal/table"
)

// table has a row for each node.
func (r *report) table() string {
	var rows [][]string
	for _, n := range r.Nodes {
		rows = append(rows, n.row())
	}
	return table.Text([]string{"NODE", "STATE", "POD", "READY", "STATUS", "RESTARTS", "REVISION", "REASON"}, rows)
}

func (n nodeReport) row() []string {
	ready, restarts := "", ""
	if n.PodStatus != "" {
		ready, restarts = fmt.Sprintf("%d/%d", n.ReadyContainers, n.Containers), fmt.Sprint(n.Restarts)
	}
	return table.Filled([]string{n.Node, string(n.State), n.Pod, ready, n.PodStatus, restarts, n.Revision, n.Reason})
}
