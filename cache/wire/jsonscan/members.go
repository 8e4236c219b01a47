package jsonscan

import "fmt"

// Members walks the members of one JSON object.
//
//	for m := MembersAt(b, i); m.Next(); {
//		… m.Skip(), or another reader that sets m.Pos to the end of the value
//	}
//
// m.Err is set where the walk has ended before the object did, else m.Pos is its end.
type Members struct {
	Data []byte
	Pos  int // in Next: the end of the last value; after it: the begin of a value
	Err  error

	Key   []byte // of the value that is next
	first bool
}

// MembersAt walks the object that begins at b[i].
func MembersAt(b []byte, i int) Members {
	m := Members{Data: b, Pos: i, first: true}
	switch {
	case i >= len(b):
		m.Err = errShort
	case b[i] != '{':
		m.Err = Unexpected(b, i)
	default:
		m.Pos++
	}
	return m
}

// Next goes to the next member's value.
func (m *Members) Next() bool {
	if m.Err != nil {
		return false
	}
	i := SkipSpace(m.Data, m.Pos)
	if i >= len(m.Data) {
		return m.fail(i, errShort)
	}
	switch {
	case m.Data[i] == '}':
		m.Pos = i + 1
		return false
	case m.first:
		m.first = false
	case m.Data[i] == ',':
		i = SkipSpace(m.Data, i+1)
	default:
		return m.fail(i, Unexpected(m.Data, i))
	}
	value, key, plain, err := skipKey(m.Data, i)
	if err != nil {
		return m.fail(value, err)
	}
	if !plain { // decoders compare what it means
		if key, err = Unquote(m.Data[i:i+len(key)+2], false); err != nil {
			return m.fail(i, err)
		}
	}
	m.Pos, m.Key = value, key
	return true
}

func (m *Members) fail(pos int, err error) bool {
	m.Pos, m.Err = pos, err
	return false
}

// Skip checks the value, goes past it and returns it. Like all that reads a value, it
// does nothing after an error.
func (m *Members) Skip() []byte {
	if m.Err != nil {
		return nil
	}
	begin := m.Pos
	m.Pos, m.Err = skipValue(m.Data, begin)
	if m.Err != nil {
		return nil
	}
	return m.Data[begin:m.Pos]
}

// Text reads a value that has to be a string. null is the empty string, as it is for
// decoders.
func (m *Members) Text() []byte {
	if m.Err != nil {
		return nil
	}
	begin := m.Pos
	if begin < len(m.Data) && m.Data[begin] == 'n' {
		m.Pos, m.Err = skipScalar(m.Data, begin)
		return nil
	}
	end, plain, err := SkipString(m.Data, begin)
	if err != nil {
		m.Pos, m.Err = end, err
		return nil
	}
	m.Pos = end
	value, err := Unquote(m.Data[begin:end], plain)
	if err != nil {
		m.Err = err
	}
	return value
}

// Once refuses a key that occurs twice: decoders differ on which counts. seen is one bit
// for each key that matters.
func (m *Members) Once(seen *uint8, bit uint8) {
	if *seen&bit != 0 {
		m.Err = fmt.Errorf("scan JSON: %.20q occurs twice: %w", m.Key, ErrMalformed)
	}
	*seen |= bit
}
