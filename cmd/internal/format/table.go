package format

import (
	"cmp"
	"slices"
	"strings"
	"text/tabwriter"
)

// Table formats rows below header, each column as wide as it needs to be.
func Table(header []string, rows [][]string) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		_, _ = w.Write([]byte(strings.Join(Filled(row), "\t") + "\n")) // into memory
	}
	_ = w.Flush()
	return out.String()
}

// Filled returns a row with a dash in each empty cell, so that people and awk can distinguish columns
// apart.
func Filled(row []string) []string {
	out := slices.Clone(row)
	for i, cell := range out {
		out[i] = cmp.Or(cell, "-")
	}
	return out
}
