package wire

import "fmt"

// jsonFramer cuts a stream of JSON objects. Blanks before an object and after it are
// taken with it as far as they are there.
type jsonFramer struct {
	max     int
	scanned int  // bytes of the frame that were looked at
	span    span // of the object
	begun   bool // the object has, blanks are over
	passing bool // the object is too large to be held, and passes in pieces
	lost    bool // no frame can be found any more
}

func (c *jsonFramer) find(b []byte) frameBounds {
	if !c.lost && !c.begun {
		c.scanned = skipSpace(b, c.scanned)
		if c.scanned == len(b) {
			c.scanned = 0
			return frameBounds{n: len(b)} // only blanks
		}
		c.begun = b[c.scanned] == '{'
		c.lost = !c.begun
	}
	if c.lost {
		return frameBounds{n: len(b), more: true, err: fmt.Errorf("%w: %w", errLost, ErrMalformed)}
	}
	n, ended := c.span.scan(b[c.scanned:])
	c.scanned += n
	if !ended && !c.passing && c.scanned <= c.max {
		return frameBounds{}
	}
	out := frameBounds{n: c.scanned, whole: true}
	if c.passing = c.passing || c.scanned > c.max; c.passing {
		out = frameBounds{n: c.scanned, more: !ended, err: tooLarge(c.max)}
	}
	c.scanned = 0
	if ended {
		out.n = skipSpace(b, out.n)
		c.begun, c.passing, c.span = false, false, span{}
	}
	return out
}

// read reads {"type":…,"object":…}.
func (c *jsonFramer) read(frame []byte, out *Frame) error {
	var seen uint8
	var eventType, object []byte
	m := membersAt(frame, skipSpace(frame, 0))
	for m.next() {
		switch string(m.key) {
		case "type":
			m.once(&seen, 1<<0)
			eventType = m.text()
		case "object":
			m.once(&seen, 1<<1)
			begin := m.pos
			out.Meta = m.object()
			object = frame[begin:m.pos]
		default:
			m.skip()
		}
	}
	if m.err != nil {
		return fmt.Errorf("read watch event: %w", m.err)
	}
	return out.event(JSON, eventType, object)
}

// object reads a value that has to be an object with metadata.
func (m *members) object() (meta Meta) {
	if m.err == nil {
		meta, m.pos, m.err = scanObject(m.b, m.pos)
	}
	return meta
}
