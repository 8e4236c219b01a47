package cli

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Filled returns a row with a dash in each empty cell, so that people and awk can distinguish columns,
// and with each cell in one line, so that no text from elsewhere looks like a row.
func Filled(row []string) []string {
	out := slices.Clone(row)
	for i, cell := range out {
		out[i] = cmp.Or(strings.Join(strings.Fields(cell), " "), "-")
	}
	return out
}

// OneLine returns text, part of which is from elsewhere, without line breaks, so that no part of it looks like a line of
// ours. It keeps blanks, and with them columns.
func OneLine(text string) string {
	return strings.NewReplacer("\n", " ", "\r", " ", "\t", " ").Replace(text)
}

const (
	gap = "   " // between two columns
	// enoughLast is a width of the last column that reads well.
	enoughLast = 24
	// leastBetween is how narrow a column between the first and the last may become.
	leastBetween = 8
)

// Table formats rows below header, each column as wide as it needs to be, in at most width columns unless that is 0: then text
// wraps in the last column, and between it and the first where that is needed. What is too long in the first column, a name,
// stands on a line of its own, unbroken.
func Table(header []string, rows [][]string, width int) string {
	lines := [][]string{header}
	for _, row := range rows {
		lines = append(lines, Filled(row))
	}
	widths := columnWidths(lines, cmp.Or(width, math.MaxInt))
	var out strings.Builder
	for _, line := range lines {
		writeRow(&out, line, widths)
	}
	return out.String()
}

// columnWidths returns the width of each column.
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
	least := Columns(lines[0][0]) // of the first column
	for between := widths[min(1, last):last]; rest < least+min(widths[last], enoughLast) && len(between) > 0; rest++ {
		i := slices.Index(between, slices.Max(between))
		if between[i] <= leastBetween {
			break
		}
		between[i]--
	}
	widths[0] = widest(lines, 0, max(rest-min(widths[last], enoughLast), least))
	widths[last] = max(rest-widths[0], Columns(lines[0][last]))
	return widths
}

// widest is the longest cell of column i that has at most so many columns.
func widest(lines [][]string, i, most int) int {
	longest := 0
	for _, line := range lines {
		if n := Columns(line[i]); n <= most {
			longest = max(longest, n)
		}
	}
	return longest
}

func writeRow(out *strings.Builder, line []string, widths []int) {
	first := line[0]
	if Columns(first) > widths[0] {
		out.WriteString(first + "\n")
		first = ""
	}
	cells, height := [][]string{{first}}, 1
	for i, text := range line[1:] {
		cells = append(cells, wrapped(text, widths[i+1]))
		height = max(height, len(cells[i+1]))
	}
	for y := range height {
		var row strings.Builder
		for i, cell := range cells {
			text := ""
			if y < len(cell) {
				text = cell[y]
			}
			row.WriteString(text + gap)
			if i < len(cells)-1 {
				row.WriteString(strings.Repeat(" ", widths[i]-Columns(text)))
			}
		}
		out.WriteString(strings.TrimRight(row.String(), " ") + "\n")
	}
}

// Hanging is text behind a label that is padded to indent columns. What is wider than width, unless that
// is 0, wraps, and goes on below the text.
func Hanging(label, text string, indent, width int) string {
	lines := []string{text}
	if width > 0 && indent+Columns(text) > width {
		lines = wrapped(text, max(width-indent, enoughLast))
	}
	var out strings.Builder
	for _, line := range lines {
		out.WriteString(label + strings.Repeat(" ", max(indent-Columns(label), 0)) + line + "\n")
		label = ""
	}
	return out.String()
}
