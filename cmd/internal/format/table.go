package format

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
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

// Filled returns a row with a dash in each empty cell, so that people and awk can distinguish columns,
// and with each cell in one line, so that no text from elsewhere looks like a row.
func Filled(row []string) []string {
	out := slices.Clone(row)
	for i, cell := range out {
		out[i] = cmp.Or(strings.Join(strings.Fields(cell), " "), "-")
	}
	return out
}

// Columns is how wide text is.
func Columns(text string) int {
	most := 0
	for line := range strings.Lines(text) {
		most = max(most, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
	}
	return most
}

const (
	gap = "   " // between two columns, as in Table
	// enoughLast is a width of the last column that reads well.
	enoughLast = 24
)

// Fitted is Table, in at most width columns unless that is 0: text in the last column wraps, and what is
// too long in the first column stands on a line of its own, unbroken. The columns between are as wide as
// they need to be.
func Fitted(header []string, rows [][]string, width int) string {
	if text := Table(header, rows); width == 0 || Columns(text) <= width {
		return text
	}
	lines := [][]string{header}
	for _, row := range rows {
		lines = append(lines, Filled(row))
	}
	widths := columnWidths(lines, width)
	var out strings.Builder
	for _, line := range lines {
		writeFitted(&out, line, widths)
	}
	return out.String()
}

// columnWidths returns the width of each column for Fitted.
func columnWidths(lines [][]string, width int) []int {
	last := len(lines[0]) - 1
	widths, rest := make([]int, last+1), width
	for i := 1; i <= last; i++ {
		widths[i] = widest(lines, i, math.MaxInt)
		rest -= len(gap)
		if i < last {
			rest -= widths[i]
		}
	}
	widths[0] = widest(lines, 0, max(rest-min(widths[last], enoughLast), utf8.RuneCountInString(lines[0][0])))
	widths[last] = max(rest-widths[0], utf8.RuneCountInString(lines[0][last]))
	return widths
}

// widest is the longest cell of column i that has at most so many columns.
func widest(lines [][]string, i, most int) int {
	longest := 0
	for _, line := range lines {
		if n := utf8.RuneCountInString(line[i]); n <= most {
			longest = max(longest, n)
		}
	}
	return longest
}

func writeFitted(out *strings.Builder, line []string, widths []int) {
	last := len(line) - 1
	first := line[0]
	if utf8.RuneCountInString(first) > widths[0] {
		out.WriteString(first + "\n")
		first = ""
	}
	for i, text := range wrapped(line[last], widths[last]) {
		cells := make([]string, last)
		if i == 0 {
			copy(cells, line)
			cells[0] = first
		}
		for j, cell := range cells {
			fmt.Fprintf(out, "%-*s%s", widths[j], cell, gap)
		}
		out.WriteString(text + "\n")
	}
}

// wrapped splits text into lines of at most width columns, which is at least 1, between words where that
// is possible. It returns at least one line.
func wrapped(text string, width int) []string {
	var lines []string
	var line []rune
	width = max(width, 1)
	for _, word := range strings.Fields(text) {
		runes := []rune(word)
		if len(line) > 0 && len(line)+1+len(runes) > width {
			lines, line = append(lines, string(line)), nil
		}
		if len(line) > 0 {
			line = append(line, ' ')
		}
		for line = append(line, runes...); len(line) > width; line = line[width:] {
			lines = append(lines, string(line[:width]))
		}
	}
	return append(lines, string(line))
}
