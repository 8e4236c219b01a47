package wire

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// span finds the end of a JSON object that comes in pieces. It counts brackets and checks nothing: the whole object is
// for a scanner.
type span struct {
	depth, deepest int
	inString       bool
	escaped        bool
}

// Scan reads the next bytes. It returns how many of them belong to the object, and whether it
// ends with them.
func (s *span) Scan(p []byte) (n int, ended bool) {
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case s.inString:
			i = s.scanString(p, i)
		case c == '"':
			s.inString = true
		case c == '{' || c == '[':
			s.depth++
			s.deepest = max(s.deepest, s.depth)
		case c == '}' || c == ']':
			if s.depth--; s.depth <= 0 {
				return i + 1, true
			}
		}
	}
	return len(p), false
}

// checkDepth returns ErrTooLarge if the object is nested too deep.
func (s *span) checkDepth() error {
	if s.deepest > maxDepth {
		return fmt.Errorf("scan JSON: more than %d levels: %w", maxDepth, ErrTooLarge)
	}
	return nil
}

// scanString returns the position of the closing quote, or the end of p.
func (s *span) scanString(p []byte, i int) int {
	for ; i < len(p); i++ {
		if s.escaped {
			s.escaped = false
			continue
		}
		for i+8 <= len(p) {
			word := binary.LittleEndian.Uint64(p[i:])
			if stop := hasByte(word, '"') | hasByte(word, '\\'); stop != 0 {
				i += bits.TrailingZeros64(stop) / 8
				break
			}
			i += 8
		}
		if i == len(p) {
			break
		}
		switch p[i] {
		case '\\':
			s.escaped = true
		case '"':
			s.inString = false
			return i
		}
	}
	return i
}

// hasByte returns a mask in which bit 7 of the first byte of w that is c is set, and no
// bit before it; https://graphics.stanford.edu/~seander/bithacks.html#ZeroInWord.
func hasByte(w uint64, c byte) uint64 {
	const everyByte, topBits = 0x0101010101010101, 0x8080808080808080
	w ^= everyByte * uint64(c)
	return (w - everyByte) & ^w & topBits
}
