package jsonscan

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"
	"strings"
	"unicode/utf8"
)

const (
	everyByte = 0x0101010101010101
	topBits   = 0x8080808080808080
)

// hasByte returns a mask in which bit 7 of the first byte of w that is c is set, and no
// bit before it; https://graphics.stanford.edu/~seander/bithacks.html#ZeroInWord.
func hasByte(w uint64, c byte) uint64 {
	w ^= everyByte * uint64(c)
	return (w - everyByte) & ^w & topBits
}

// hasControl is like hasByte for all below a blank.
func hasControl(w uint64) uint64 { return (w - everyByte*' ') & ^w & topBits }

// trailingZeroBytes is how many bytes of a word come before the first bit of a mask.
func trailingZeroBytes(mask uint64) int { return bits.TrailingZeros64(mask) / 8 }

// SkipString returns the end of the string that begins at b[i], after checking it; plain
// is false where it has escapes. Eight bytes are looked at in one go.
func SkipString(b []byte, i int) (end int, plain bool, err error) {
	if i >= len(b) {
		return i, false, errShort
	}
	if b[i] != '"' {
		return i, false, Unexpected(b, i)
	}
	plain = true
	i++
	for {
		for i+8 <= len(b) {
			w := binary.LittleEndian.Uint64(b[i:])
			if stop := hasByte(w, '"') | hasByte(w, '\\') | hasControl(w); stop != 0 {
				i += trailingZeroBytes(stop)
				break
			}
			i += 8
		}
		for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
			i++
		}
		switch {
		case i >= len(b):
			return i, false, errShort
		case b[i] == '"':
			return i + 1, plain, nil
		case b[i] == '\\':
			plain = false
			if i, err = skipEscape(b, i); err != nil {
				return i, false, err
			}
		default: // a control character
			return i, false, Unexpected(b, i)
		}
	}
}

// skipEscape returns the end of the escape whose backslash is b[i].
func skipEscape(b []byte, i int) (end int, err error) {
	if i++; i >= len(b) {
		return i, errShort
	}
	if strings.IndexByte(`"\/bfnrt`, b[i]) >= 0 {
		return i + 1, nil
	}
	if b[i] != 'u' {
		return i, Unexpected(b, i)
	}
	for range 4 {
		if i++; i >= len(b) {
			return i, errShort
		}
		if strings.IndexByte("0123456789abcdefABCDEF", b[i]) < 0 {
			return i, Unexpected(b, i)
		}
	}
	return i + 1, nil
}

// Unquote returns what a string means that SkipString has found sound. Quotes are part of
// it. A plain one is not copied.
func Unquote(quoted []byte, plain bool) ([]byte, error) {
	if plain {
		return ValidText(quoted[1 : len(quoted)-1]), nil
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return nil, fmt.Errorf("unquote JSON string: %w: %w", ErrMalformed, err)
	}
	return []byte(s), nil
}

// ValidText replaces each byte that is not UTF-8, as decoders do.
func ValidText(b []byte) []byte {
	if utf8.Valid(b) {
		return b
	}
	return []byte(string([]rune(string(b))))
}
