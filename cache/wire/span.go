package wire

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// span finds the end of one JSON value that comes in pieces: an object, an array, a string or
// null. It counts brackets and checks nothing: the whole value is for a scanner.
type span struct {
	depth, deepest int
	inString       bool
	escaped        bool
	literal        int // bytes of null to come
	begun          bool
}

// Scan reads the next bytes. It returns how many of them belong to the value, and whether the
// value ends with them.
func (s *span) Scan(p []byte) (n int, ended bool) {
	if !s.begun && len(p) > 0 {
		s.begun = true
		if p[0] == 'n' {
			s.literal = len("null")
		}
	}
	if s.literal > 0 {
		n = min(s.literal, len(p))
		s.literal -= n
		return n, s.literal == 0
	}
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case s.inString:
			if i = s.scanString(p, i); i == len(p) {
				return i, false
			}
		case c == '"':
			s.inString = true
			continue
		case c == '{' || c == '[':
			s.depth++
			s.deepest = max(s.deepest, s.depth)
			continue
		case c == '}' || c == ']':
			s.depth--
		default:
			continue
		}
		if s.depth <= 0 {
			return i + 1, true
		}
	}
	return len(p), false
}

// checkDepth returns ErrTooLarge if the value is nested too deep.
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
