package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// table has a row for each node.
func (r *report) table() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NODE\tSTATE\tPOD\tREVISION\tREASON")
	for _, n := range r.Nodes {
		fmt.Fprintln(w, n.row())
	}
	_ = w.Flush() // into memory
	return out.String()
}

func (n nodeReport) row() string {
	cells := []string{n.Node, string(n.State), n.Pod, n.Revision, n.Reason}
	for i, c := range cells {
		if c == "" {
			cells[i] = "-"
		}
	}
	return strings.Join(cells, "\t")
}
