package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Safe returns a writer to w for text that others have written in part: names of images,
// messages of a server. It escapes what a terminal could take for a command, except line feeds
// and tabs; the escapes mean the same in JSON. Terminal and NewScreen look through it.
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

// Foreign returns a writer to w for what another program has written. A file or a pipe gets it
// byte for byte, also below Safe; a terminal gets it as from Safe, and a character that two calls
// of Write share as one.
func Foreign(w io.Writer) io.Writer {
	if _, isTerminal := Terminal(w); !isTerminal {
		return Raw(w)
	}
	return &whole{w: Safe(Raw(w))}
}

// whole passes on whole characters of UTF-8. Up to three bytes of a last one that never ends are
// not shown.
type whole struct {
	w    io.Writer
	rest []byte
}

func (s *whole) Write(p []byte) (int, error) {
	text := slices.Concat(s.rest, p)
	end := wholeEnd(text)
	if _, err := s.w.Write(text[:end]); err != nil {
		return 0, err
	}
	s.rest = slices.Clone(text[end:])
	return len(p), nil
}

// wholeEnd returns where a last character that is not complete begins, or the end of text.
func wholeEnd(text []byte) int {
	for i := len(text) - 1; i >= max(0, len(text)-utf8.UTFMax+1); i-- {
		if utf8.RuneStart(text[i]) {
			if utf8.FullRune(text[i:]) {
				return len(text)
			}
			return i
		}
	}
	return len(text)
}
