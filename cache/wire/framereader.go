package wire

import (
	"errors"
	"fmt"
	"io"
)

// FrameReader cuts a watch stream into frames. What it cannot read as an event it returns
// unchanged, and goes on; a frame of more than MaxSize passes in pieces. It holds one frame, and little memory while
// the stream is idle.
type FrameReader struct {
	r      io.Reader
	framer framer

	buf        []byte
	start, end int         // buf[start:end] was read and not returned
	readErr    error       // why the stream has ended
	next       frameBounds // of the frame at start
	known      bool        // next is set
}

// framer finds and reads the frames of one encoding.
type framer interface {
	// find returns the bounds of the frame that b begins with. If the frame is not whole, find
	// is called again with the same bytes and more.
	find(b []byte) frameBounds

	// read reads a whole frame.
	read(frame []byte, f *Frame) error
}

// frameBounds is the result of find.
type frameBounds struct {
	n     int  // length; 0 if find needs more
	whole bool // these bytes are an event
	more  bool // Frame.More
	err   error
}

const (
	// idleBuffer is the size, in bytes, of the buffer of an idle stream. Hundreds of watches
	// are open on a node; most events have about this size.
	idleBuffer = 4 << 10

	// keptBuffer is the size, in bytes, up to which a grown buffer is kept.
	keptBuffer = 64 << 10
)

// NewFrameReader returns a reader of the frames in r.
func NewFrameReader(r io.Reader, e Encoding) (*FrameReader, error) {
	return newFrameReader(r, e, MaxSize)
}

func newFrameReader(r io.Reader, e Encoding, most int) (*FrameReader, error) {
	switch e {
	case Protobuf:
		return &FrameReader{r: r, framer: &protoFramer{max: most}}, nil
	case JSON:
		return &FrameReader{r: r, framer: &jsonFramer{max: most}}, nil
	default:
		return nil, fmt.Errorf("read watch stream: %w", ErrEncoding)
	}
}

// Next returns the next frame. The error is that of the stream, io.EOF at its end. An
// incomplete frame at the end comes before, with ErrTruncated.
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

// Ready reports whether Next returns a frame without reading, so that a writer may flush later.
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

// fill reads once.
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

// errNoFrame is the error of everything after bytes that begin no frame.
var errNoFrame = errors.New("read watch stream: no frame begins here")
