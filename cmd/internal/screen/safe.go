package screen

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Safe returns a writer to w for text that has parts which others have written: names of
// images, messages of a server. What a terminal would not print, and could take for a
// command, is escaped, all but line feeds and tabs; in JSON it means the same as before.
// Terminal and New look through it.
func Safe(w io.Writer) io.Writer { return safe{w} }

type safe struct{ w io.Writer }

func (s safe) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.w, printable(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// plain is the writer below w, if w is from Safe.
func plain(w io.Writer) io.Writer {
	if s, ok := w.(safe); ok {
		return s.w
	}
	return w
}

func printable(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd") // single bytes are commands for some terminals, too
	if strings.IndexFunc(text, isCommand) < 0 {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if !isCommand(r) {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.String()
}

func isCommand(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsGraphic(r) }
