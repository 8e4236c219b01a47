package main

import "github.com/edgehub-io/edgehub/cmd/internal/table"

// table has a row for each node.
func (r *report) table() string {
	var rows [][]string
	for _, n := range r.Nodes {
		rows = append(rows, n.row())
	}
	return table.Text([]string{"NODE", "STATE", "POD", "REVISION", "REASON"}, rows)
}

func (n nodeReport) row() []string {
	return table.Filled([]string{n.Node, string(n.State), n.Pod, n.Revision, n.Reason})
}
