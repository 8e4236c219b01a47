package wire

import (
	"encoding/binary"
	"fmt"
)

// frameHeader is the length of the length, big-endian, that stands before each protobuf
// frame (apimachinery, util/framer).
const frameHeader = 4

// protoFramer cuts a stream of frames that say their length, header included.
type protoFramer struct {
	max  int
	left int64 // bytes still to come of a frame that passes in pieces
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

// read reads metav1.WatchEvent{1 type, 2 RawExtension{1 raw}}, which is bare.
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
