package wire

import (
	"bytes"
	"fmt"

	"github.com/edgehub-io/edgehub/cache/wire/jsonscan"
)

// jsonFramer cuts a stream of JSON objects. Blanks before an object and after it are
// taken with it as far as they are there.
type jsonFramer struct {
	max     int
	scanned int           // bytes of the frame that were looked at
	span    jsonscan.Span // of the object
	begun   bool          // the object has, blanks are over
	passing bool          // the object is too large to be held, and passes in pieces
	lost    bool          // no frame can be found any more
}

func (c *jsonFramer) find(b []byte) frameBounds {
	if !c.lost && !c.begun {
		c.scanned = jsonscan.SkipSpace(b, c.scanned)
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
		out.n = jsonscan.SkipSpace(b, out.n)
		c.begun, c.passing, c.span = false, false, jsonscan.Span{}
	}
	return out
}

// read reads {"type":…,"object":…}.
func (c *jsonFramer) read(frame []byte, out *Frame) error {
	s := jsonscan.New(frame)
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
	if s.Err == nil {
		s.Err = jsonscan.CheckDepth(frame)
	}
	if s.Err != nil {
		return fmt.Errorf("read watch event: %w", s.Err)
	}
	return out.event(JSON, eventType, object)
}
