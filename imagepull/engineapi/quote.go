package engineapi

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// quoteLimit bounds what is repeated of a text that somebody else has written, in bytes.
const quoteLimit = 300

// Quote returns a text that a registry, an image or another program has written, as it may stand
// in a message of ours: in quotation marks that it cannot end, bounded, and in one line
// without characters that would change what a terminal shows.
func Quote(text string) string {
	return `"` + strings.ReplaceAll(line(text, quoteLimit), `"`, "'") + `"`
}

// line is a text of at most that many bytes in one line. Characters that cannot be
// printed, which a terminal could take for commands, are escaped as Go does.
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

// Amount is a number of bytes for people.
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
