package jsonscan

import "encoding/binary"

// Span finds the end of one JSON value that comes in pieces: an object, an array, a
// string or null. It counts brackets and checks nothing; who has the whole value does.
type Span struct {
	depth    int
	inString bool
	escaped  bool
	literal  int // bytes of null to come
	begun    bool
}

// Scan looks at the next bytes. It returns how many of them belong to the value, and
// whether it has ended with them.
func (s *Span) Scan(p []byte) (n int, ended bool) {
	i := 0
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
	for i < len(p) {
		if s.inString {
			if i = s.scanString(p, i); s.inString {
				return i, false
			}
			if s.depth == 0 {
				return i, true
			}
			continue
		}
		switch p[i] {
		case '"':
			s.inString = true
		case '{', '[':
			s.depth++
		case '}', ']':
			if s.depth--; s.depth <= 0 {
				return i + 1, true
			}
		}
		i++
	}
	return i, false
}

// scanString goes on within a string, and behind its closing quote if that is there.
func (s *Span) scanString(p []byte, i int) int {
	for ; i < len(p); i++ {
		if s.escaped {
			s.escaped = false
			continue
		}
		for i+8 <= len(p) { // eight bytes in one go: see SkipString
			stop := hasByte(binary.LittleEndian.Uint64(p[i:]), '"') | hasByte(binary.LittleEndian.Uint64(p[i:]), '\\')
			if stop != 0 {
				i += trailingZeroBytes(stop)
				break
			}
			i += 8
		}
		if i == len(p) {
			return i
		}
		switch p[i] {
		case '\\':
			s.escaped = true
		case '"':
			s.inString = false
			return i + 1
		}
	}
	return i
}
