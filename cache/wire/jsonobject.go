package wire

import (
	"fmt"
	"iter"
)

// members walks the members of one JSON object.
//
//	for m := membersAt(b, i); m.next(); {
//		… m.skip(), or another reader that sets m.pos to the end of the value
//	}
//
// m.err is set where the walk has ended before the object did, else m.pos is its end.
type members struct {
	b   []byte
	pos int // in next: the end of the last value; after it: the begin of a value
	err error

	key   []byte
	first bool
}

func membersAt(b []byte, i int) members {
	m := members{b: b, pos: i, first: true}
	switch {
	case i >= len(b):
		m.err = errShortJSON
	case b[i] != '{':
		m.err = errBadJSON(b, i)
	default:
		m.pos++
	}
	return m
}

// next goes to the next member's value.
func (m *members) next() bool {
	if m.err != nil {
		return false
	}
	i := skipSpace(m.b, m.pos)
	if i >= len(m.b) {
		return m.fail(i, errShortJSON)
	}
	switch {
	case m.b[i] == '}':
		m.pos = i + 1
		return false
	case m.first:
		m.first = false
	case m.b[i] == ',':
		i = skipSpace(m.b, i+1)
	default:
		return m.fail(i, errBadJSON(m.b, i))
	}
	value, key, plain, err := skipKey(m.b, i)
	if err != nil {
		return m.fail(value, err)
	}
	if !plain { // decoders compare what it means
		if key, err = unquote(m.b[i:i+len(key)+2], false); err != nil {
			return m.fail(i, err)
		}
	}
	m.pos, m.key = value, key
	return true
}

func (m *members) fail(pos int, err error) bool {
	m.pos, m.err = pos, err
	return false
}

// skip checks the value, goes past it and returns it. Like all that reads a value, it
// does nothing after an error.
func (m *members) skip() []byte {
	if m.err != nil {
		return nil
	}
	begin := m.pos
	m.pos, m.err = skipValue(m.b, begin)
	if m.err != nil {
		return nil
	}
	return m.b[begin:m.pos]
}

// text reads a value that has to be a string. null is the empty string, as it is for
// decoders.
func (m *members) text() []byte {
	if m.err != nil {
		return nil
	}
	begin := m.pos
	if begin < len(m.b) && m.b[begin] == 'n' {
		m.pos, m.err = skipScalar(m.b, begin)
		return nil
	}
	end, plain, err := skipString(m.b, begin)
	if err != nil {
		m.pos, m.err = end, err
		return nil
	}
	m.pos = end
	value, err := unquote(m.b[begin:end], plain)
	if err != nil {
		m.err = err
	}
	return value
}

// once refuses a key that occurs twice: decoders differ on which counts. seen is one bit
// for each key that matters.
func (m *members) once(seen *uint8, bit uint8) {
	if *seen&bit != 0 {
		m.err = fmt.Errorf("scan JSON: %.20q occurs twice: %w", m.key, ErrMalformed)
	}
	*seen |= bit
}

func inspectJSON(object []byte) (Meta, error) {
	m, end, err := scanObject(object, skipSpace(object, 0))
	if err != nil {
		return Meta{}, fmt.Errorf("inspect object: %w", err)
	}
	if end = skipSpace(object, end); end != len(object) {
		return Meta{}, fmt.Errorf("inspect object: %w", errBadJSON(object, end))
	}
	return m, nil
}

// scanObject checks the object that begins at b[i] and returns its metadata and its end,
// in one pass.
func scanObject(b []byte, i int) (meta Meta, end int, err error) {
	meta.encoding = JSON
	var seen uint8
	o := membersAt(b, i)
	for o.next() {
		switch string(o.key) {
		case "apiVersion":
			o.once(&seen, 1<<0)
			meta.APIVersion = o.text()
		case "kind":
			o.once(&seen, 1<<1)
			meta.Kind = o.text()
		case "metadata":
			o.once(&seen, 1<<2)
			o.metadata(&meta)
		default:
			o.skip()
		}
	}
	return meta, o.pos, o.err
}

// metadata reads a value that has to be an ObjectMeta.
func (m *members) metadata(meta *Meta) {
	if m.err != nil {
		return
	}
	if m.pos < len(m.b) && m.b[m.pos] == 'n' {
		m.skip() // null: decoders leave it empty
		return
	}
	var seen uint8
	o := membersAt(m.b, m.pos)
	for o.next() {
		switch string(o.key) {
		case "name":
			o.once(&seen, 1<<0)
			meta.Name = o.text()
		case "namespace":
			o.once(&seen, 1<<1)
			meta.Namespace = o.text()
		case "uid":
			o.once(&seen, 1<<2)
			meta.UID = o.text()
		case "resourceVersion":
			o.once(&seen, 1<<3)
			meta.ResourceVersion = o.text()
		case "labels":
			o.once(&seen, 1<<4)
			meta.labels = o.skip()
		case "annotations":
			o.once(&seen, 1<<5)
			meta.annotations = o.skip()
		default:
			o.skip()
		}
	}
	m.pos, m.err = o.pos, o.err
}

// jsonMapEntries yields the members of an object whose values are strings.
func jsonMapEntries(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		if len(object) == 0 || object[0] != '{' {
			return
		}
		for m := membersAt(object, 0); m.next(); {
			key := validText(m.key)
			if value := m.text(); m.err != nil || !yield(key, value) {
				return
			}
		}
	}
}
