package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// frameHeader is the size of the big-endian length before each protobuf frame
// (apimachinery, util/framer).
const frameHeader = 4

// protoFramer cuts a stream of protobuf frames. Their headers are part of them.
type protoFramer struct {
	max  int
	left int64 // remaining bytes of a frame that passes in pieces
}

func (c *protoFramer) find(b []byte) frameBounds {
	if c.left == 0 {
		if len(b) < frameHeader {
			return frameBounds{}
		}
		length := int64(binary.BigEndian.Uint32(b))
		if length <= int64(c.max) {
			if int64(len(b)) < frameHeader+length {
				return frameBounds{}
			}
			return frameBounds{n: int(frameHeader + length), whole: true}
		}
		c.left = frameHeader + length
	}
	n := min(c.left, int64(len(b)))
	c.left -= n
	return frameBounds{n: int(n), more: c.left > 0, err: tooLarge(c.max)}
}

// read reads a bare metav1.WatchEvent{1 type, 2 RawExtension{1 raw}}.
func (c *protoFramer) read(frame []byte, out *Frame) error {
	var eventType, object []byte
	f := fields{rest: frame[frameHeader:]}
	for f.next() {
		switch f.tag {
		case watchEventType:
			eventType = f.value
		case watchEventObject:
			e := fields{rest: f.value}
			for e.next() {
				if e.tag == rawExtensionRaw {
					object = e.value
				}
			}
			if e.err != nil {
				return fmt.Errorf("read watch event: %w", e.err)
			}
		}
	}
	if f.err != nil {
		return fmt.Errorf("read watch event: %w", f.err)
	}
	var err error
	if out.Meta, err = inspectProto(object); err != nil {
		return fmt.Errorf("read watch event: %w", err)
	}
	return out.event(Protobuf, eventType, object)
}

// jsonFramer cuts a stream of JSON objects. Blanks around an object belong to its frame, as far
// as they have come.
type jsonFramer struct {
	max     int
	scanned int  // bytes of the frame that span has seen
	span    span // of the object
	begun   bool // the object, after blanks
	passing bool // the object is too large, and passes in pieces
	opaque  bool // no frame can be found any more
}

func (c *jsonFramer) find(b []byte) frameBounds {
	if !c.opaque && !c.begun {
		c.scanned = skipSpace(b, c.scanned)
		if c.scanned == len(b) {
			c.scanned = 0
			return frameBounds{n: len(b)} // only blanks
		}
		c.begun = b[c.scanned] == '{'
		c.opaque = !c.begun
	}
	if c.opaque {
		return frameBounds{n: len(b), more: true, err: fmt.Errorf("%w: %w", errNoFrame, ErrMalformed)}
	}
	n, ended := c.span.Scan(b[c.scanned:])
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
		if err := c.span.checkDepth(); err != nil && out.whole {
			out.whole, out.err = false, fmt.Errorf("read watch event: %w", err)
		}
		out.n = skipSpace(b, out.n)
		c.begun, c.passing, c.span = false, false, span{}
	}
	return out
}

// read reads {"type":…,"object":…}.
func (c *jsonFramer) read(frame []byte, out *Frame) error {
	s := newScanner(frame)
	defer s.Release()
	var seen uint8
	var eventType, object []byte
	for key := range s.Members() {
		switch string(key) {
		case "type":
			s.Once(&seen, 1<<0)
			eventType = s.Text()
		case "object":
			s.Once(&seen, 1<<1)
			begin := s.Pos()
			readObject(s, &out.Meta)
			object = bytes.TrimLeft(frame[begin:s.Pos()], ": \n\r\t")
		default:
			s.Value()
		}
	}
	if s.Err != nil {
		return fmt.Errorf("read watch event: %w", s.Err)
	}
	return out.event(JSON, eventType, object)
}
