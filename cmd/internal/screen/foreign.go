package screen

import (
	"io"
	"slices"
	"unicode/utf8"
)

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
