package wire

import (
	"errors"
	"fmt"
	"io"
)

// FrameOptions are the limits of a FrameReader. The zero value is good.
type FrameOptions struct {
	// MaxFrame is the size, in bytes, of the largest frame that is read; 0 is
	// DefaultMaxSize. Larger ones pass in pieces.
	MaxFrame int
}

// FrameReader cuts a watch stream into frames. It never ends a stream because it cannot
// read it: what is no event comes out as it is. It holds one frame, and little where the
// stream is idle.
type FrameReader struct {
	r      io.Reader
	framer framer
	max    int

	buf        []byte
	start, end int         // what is read and not handed out is buf[start:end]
	readErr    error       // why nothing more comes
	next       frameBounds // of what begins at start, once it is known
	known      bool
}

// framer finds and reads the frames of one encoding.
type framer interface {
	// find looks at what begins a frame, or goes on with one; of the same frame it is
	// called again with more. It never returns more than it was given.
	find(b []byte) frameBounds

	// read reads a whole frame.
	read(frame []byte, f *Frame) error
}

// frameBounds is what a framer has found: where n is 0, more has to come first.
type frameBounds struct {
	n     int
	whole bool // b[:n] is an event, to be read
	more  bool // Frame.More
	err   error
}

const (
	// idleBuffer is the size, in bytes, of the buffer of a stream that waits. Hundreds
	// of watches are open on a node; most events are about this long.
	idleBuffer = 4 << 10

	// keptBuffer is the size up to which a buffer that has grown is kept.
	keptBuffer = 64 << 10
)

// NewFrameReader returns a reader of the frames in r.
func NewFrameReader(r io.Reader, e Encoding, o FrameOptions) (*FrameReader, error) {
	if o.MaxFrame == 0 {
		o.MaxFrame = DefaultMaxSize
	}
	f := &FrameReader{r: r, max: o.MaxFrame}
	switch e {
	case Protobuf:
		f.framer = &protoFramer{max: o.MaxFrame}
	case JSON:
		f.framer = &jsonFramer{max: o.MaxFrame}
	default:
		return nil, fmt.Errorf("read watch stream: %w", ErrEncoding)
	}
	return f, nil
}

// Next returns the next frame. The error is that of the stream, io.EOF at its end: what
// had come of a frame by then was the frame before, with ErrTruncated.
func (r *FrameReader) Next() (Frame, error) {
	for !r.Ready() {
		if r.readErr != nil {
			return Frame{}, r.readErr
		}
		r.fill()
	}
	c := r.next
	f := Frame{Raw: r.buf[r.start : r.start+c.n], More: c.more, Err: c.err}
	if c.whole {
		if err := r.framer.read(f.Raw, &f); err != nil {
			f = Frame{Raw: f.Raw, Err: err}
		}
	}
	r.start += c.n
	r.known = false
	return f, nil
}

// Ready reports whether Next returns a frame without reading: a writer may wait with its
// flush then.
func (r *FrameReader) Ready() bool {
	if r.known {
		return true
	}
	rest := r.buf[r.start:r.end]
	if len(rest) == 0 {
		return false
	}
	r.next = r.framer.find(rest)
	if r.next.n == 0 && r.readErr != nil {
		r.next = frameBounds{n: len(rest), more: true, err: fmt.Errorf("read watch stream: it ends within an event: %w", ErrTruncated)}
	}
	r.known = r.next.n > 0
	return r.known
}

// fill reads once, into a buffer that has room for it.
func (r *FrameReader) fill() {
	switch {
	case r.start == r.end && cap(r.buf) > keptBuffer || r.buf == nil:
		r.buf, r.start, r.end = make([]byte, idleBuffer), 0, 0
	case r.start > 0:
		copy(r.buf, r.buf[r.start:r.end])
		r.start, r.end = 0, r.end-r.start
	}
	if r.end == len(r.buf) { // a framer asks for more only up to its limit
		larger := make([]byte, 2*len(r.buf))
		copy(larger, r.buf)
		r.buf = larger
	}
	n, err := r.r.Read(r.buf[r.end:])
	r.end += n
	if err != nil {
		r.readErr = err
	}
}

// tooLarge is the error of every piece of a frame beyond the limit.
func tooLarge(limit int) error {
	return fmt.Errorf("read watch stream: a frame of more than %d bytes: %w", limit, ErrTooLarge)
}

// errLost is the error of all that comes after bytes at which no frame begins.
var errLost = errors.New("read watch stream: no frame begins here")
