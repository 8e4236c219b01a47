package cli

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Columns is how wide text is on a terminal: its longest line.
func Columns(text string) int {
	most := 0
	for line := range strings.Lines(text) {
		n := 0
		for _, r := range strings.TrimSuffix(line, "\n") {
			n += columnsOf(r)
		}
		most = max(most, n)
	}
	return most
}

// columnsOf returns how many columns terminals give a character: none to those that are put onto the one
// before, two to those of East Asian scripts and to emoji, as Unicode's annex 11 has it. The few for which
// terminals differ do not matter to a table.
func columnsOf(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case r >= 0xff61 && r <= 0xffdc: // halfwidth forms
		return 1
	case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana, unicode.Bopomofo, unicode.Yi),
		r >= 0x3001 && r <= 0x303e, r >= 0xff01 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1faff:
		return 2
	}
	return 1
}

// start is as much of a line as fits into width columns.
func start(line string, width int) string {
	for i, r := range line {
		if width -= columnsOf(r); width < 0 {
			return line[:i]
		}
	}
	return line
}

// wrapped splits text into lines of at most width columns, between words where that is possible. It
// returns at least one line. Of a width that no character fits into it makes lines of one character.
func wrapped(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && Columns(line)+1+Columns(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
		for Columns(line) > width {
			head := start(line, width)
			if head == "" {
				head = string([]rune(line)[:1])
			}
			if head == line {
				break
			}
			lines, line = append(lines, head), line[len(head):]
		}
	}
	return append(lines, line)
}

// First joins the first n of a list of total entries, which may be longer than list, and counts the others.
func First(list []string, n, total int) string {
	n = min(len(list), n)
	s := strings.Join(list[:n], ", ")
	if more := total - n; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

// Joined returns the parts that are not empty, with commas between them.
func Joined(parts ...string) string {
	isEmpty := func(part string) bool { return part == "" }
	return strings.Join(slices.DeleteFunc(slices.Clone(parts), isEmpty), ", ")
}
