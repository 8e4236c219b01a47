package screen

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Safe returns a writer to w for text that others have written in part: names of images,
// messages of a server. It escapes what a terminal could take for a command, except line feeds
// and tabs; the escapes mean the same in JSON. Terminal and New look through it.
func Safe(w io.Writer) io.Writer { return safe{w} }

type safe struct{ w io.Writer }

func (s safe) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.w, printable(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Raw returns the writer below w if w is from Safe, and w otherwise: for bytes that are no text.
func Raw(w io.Writer) io.Writer {
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
