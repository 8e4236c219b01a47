package engineapi

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// quoteLimit bounds a quotation, in bytes.
const quoteLimit = 300

// Quote quotes a text of a registry, an image or another program in one line. The text is shortened,
// cannot end the quotation, and has no characters that a terminal would interpret.
func Quote(text string) string {
	return `"` + strings.ReplaceAll(line(text, quoteLimit), `"`, "'") + `"`
}

// line joins the lines of a text and shortens it to that many bytes. It escapes characters that cannot
// be printed, as Go does: a terminal could interpret them.
func line(text string, most int) string {
	const more = "…"
	var out strings.Builder
	gap := false
	for _, r := range text {
		if unicode.IsSpace(r) {
			gap = out.Len() > 0
			continue
		}
		piece := printable(r)
		if gap {
			piece, gap = " "+piece, false
		}
		if out.Len()+len(piece) > most-len(more) {
			return out.String() + more
		}
		out.WriteString(piece)
	}
	return out.String()
}

func printable(r rune) string {
	if unicode.IsPrint(r) {
		return string(r)
	}
	return strings.Trim(strconv.QuoteRune(r), "'")
}

// Amount formats a number of bytes for people.
func Amount(n int64) string {
	const unit = 1000
	value, i := float64(n), 0
	names := []string{"B", "kB", "MB", "GB", "TB"}
	for ; value >= unit && i < len(names)-1; i++ {
		value /= unit
	}
	if i == 0 || value >= 10 {
		return fmt.Sprintf("%.0f %s", value, names[i])
	}
	return fmt.Sprintf("%.1f %s", value, names[i])
}
