// Package table prints tables for people.
package table

import (
	"strings"
	"text/tabwriter"
)

// Text returns rows below header, each column as wide as it needs to be.
func Text(header []string, rows [][]string) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		_, _ = w.Write([]byte(strings.Join(Filled(row), "\t") + "\n")) // into memory
	}
	_ = w.Flush()
	return out.String()
}

// Filled returns a row with a dash in each cell that would be empty, so that
// columns can be told apart, by people and by awk.
func Filled(row []string) []string {
	out := make([]string, len(row))
	for i, cell := range row {
		if out[i] = cell; cell == "" {
			out[i] = "-"
		}
	}
	return out
}
