package jsonscan

import "fmt"

// maxDepth is how deep JSON may be nested. The schema of a CustomResourceDefinition is
// the deepest that Kubernetes itself writes, some tens of levels; decoders stop at 10,000.
const maxDepth = 512

// skipValue returns the end of the JSON value that begins at b[i], after checking it. A
// value that is not whole is ErrTruncated: there may be more to come.
func skipValue(b []byte, i int) (end int, err error) {
	var (
		objects [maxDepth/64 + 1]uint64 // bit d: the container at depth d is an object
		depth   = 0
		inside  = false // in the innermost container, which is an object
	)
	for {
		// A value begins at b[i].
		if i >= len(b) {
			return i, errShort
		}
		switch c := b[i]; c {
		case '"':
			if i, _, err = SkipString(b, i); err != nil {
				return i, err
			}
		case '{', '[':
			if depth == maxDepth {
				return i, fmt.Errorf("scan JSON: more than %d levels: %w", maxDepth, ErrTooLarge)
			}
			depth++
			inside = c == '{'
			objects[depth/64] &^= 1 << (depth % 64)
			if inside {
				objects[depth/64] |= 1 << (depth % 64)
			}
			if i = SkipSpace(b, i+1); i >= len(b) {
				return i, errShort
			}
			if b[i] != c+2 { // '}' and ']' stand two after '{' and '['
				if inside {
					if i, _, _, err = skipKey(b, i); err != nil {
						return i, err
					}
				}
				continue
			}
			// Empty: the end is taken below.
		default:
			if i, err = skipScalar(b, i); err != nil {
				return i, err
			}
		}

		// A value has ended before b[i], or an empty container ends at it.
		for {
			if depth == 0 {
				return i, nil
			}
			if i < len(b) && IsSpace(b[i]) {
				i = SkipSpace(b, i)
			}
			if i >= len(b) {
				return i, errShort
			}
			if b[i] == ',' {
				i = SkipSpace(b, i+1)
				break
			}
			if inside && b[i] != '}' || !inside && b[i] != ']' {
				return i, Unexpected(b, i)
			}
			i++
			depth--
			inside = objects[depth/64]&(1<<(depth%64)) != 0
		}
		if inside {
			if i, _, _, err = skipKey(b, i); err != nil {
				return i, err
			}
		}
	}
}

// skipKey reads a key at b[i] and returns where its value begins, and the key without its
// quotes; plain is false where it has escapes.
func skipKey(b []byte, i int) (value int, key []byte, plain bool, err error) {
	end, plain, err := SkipString(b, i)
	if err != nil {
		return end, nil, false, err
	}
	key = b[i+1 : end-1]
	if i = end; i < len(b) && b[i] != ':' {
		i = SkipSpace(b, i)
	}
	if i >= len(b) {
		return i, nil, false, errShort
	}
	if b[i] != ':' {
		return i, nil, false, Unexpected(b, i)
	}
	if i++; i < len(b) && IsSpace(b[i]) {
		i = SkipSpace(b, i)
	}
	return i, key, plain, nil
}

// skipScalar returns the end of a number, true, false or null at b[i].
func skipScalar(b []byte, i int) (end int, err error) {
	var literal string
	switch b[i] {
	case 't':
		literal = "true"
	case 'f':
		literal = "false"
	case 'n':
		literal = "null"
	default:
		return skipNumber(b, i)
	}
	for j := range len(literal) {
		if i+j >= len(b) {
			return i + j, errShort
		}
		if b[i+j] != literal[j] {
			return i + j, Unexpected(b, i+j)
		}
	}
	return i + len(literal), nil
}

// skipNumber returns the end of a number at b[i]. One that reaches the end of b is taken
// for whole: where more may come, values are objects and strings.
func skipNumber(b []byte, i int) (end int, err error) {
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++ // and no digit may follow
	} else if i, err = skipDigits(b, i); err != nil {
		return i, err
	}
	if i < len(b) && b[i] == '.' {
		if i, err = skipDigits(b, i+1); err != nil {
			return i, err
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if i, err = skipDigits(b, i); err != nil {
			return i, err
		}
	}
	return i, nil
}

func skipDigits(b []byte, i int) (end int, err error) {
	begin := i
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	switch {
	case i > begin:
		return i, nil
	case i >= len(b):
		return i, errShort
	default:
		return i, Unexpected(b, i)
	}
}

// IsSpace reports whether c may stand between values.
func IsSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// SkipSpace returns the end of the blanks at b[i].
func SkipSpace(b []byte, i int) int {
	for i < len(b) && IsSpace(b[i]) {
		i++
	}
	return i
}

// errShortJSON is returned at each end of a piece of a list, too.
var errShort = fmt.Errorf("scan JSON: %w", ErrTruncated)

// Unexpected is the ErrMalformed of what stands at b[i].
func Unexpected(b []byte, i int) error {
	return fmt.Errorf("scan JSON: %.10q is not what may stand here: %w", b[i:min(i+10, len(b))], ErrMalformed)
}
