package wire

import (
	"encoding/binary"
	"fmt"
)

// WebSocket finds the text messages in what the server of a WebSocket sends (RFC 6455). An apiserver sends
// one watch event in each, in JSON. The zero value is ready.
type WebSocket struct {
	buf []byte // the beginning of a frame
	err error
}

// The parts of a frame's header.
const (
	socketFinal    = 0x80
	socketReserved = 0x70 // of extensions
	socketOpcode   = 0x0f
	socketText     = 0x1
	socketControl  = 0x8 // this opcode and all above: close, ping and pong
	socketMasked   = 0x80
	socketLength   = 0x7f
)

// Feed calls take for each text message that ends in p; its bytes are valid until take returns. Anything
// but whole text messages, and frames that carry no data, is an error, as is all that follows it.
func (w *WebSocket) Feed(p []byte, take func(text []byte) error) error {
	w.buf = append(w.buf, p...)
	rest := w.buf
	for w.err == nil {
		var n int
		if n, w.err = socketFrame(rest, take); n == 0 {
			break
		}
		rest = rest[n:]
	}
	switch {
	case w.err != nil, len(rest) == 0 && cap(w.buf) > keptBuffer:
		w.buf = nil
	case len(rest) < len(w.buf): // of a long frame, nothing is moved before it is whole
		w.buf = append(w.buf[:0], rest...)
	}
	return w.err
}

// socketFrame reads the frame that b begins with, and returns its length, or 0 if it is not whole.
func socketFrame(b []byte, take func(text []byte) error) (int, error) {
	if len(b) < 2 {
		return 0, nil
	}
	length, header := uint64(b[1]&socketLength), 2
	switch {
	case b[0]&socketReserved != 0 || b[1]&socketMasked != 0:
		return 0, fmt.Errorf("read WebSocket: a frame of an extension, or a masked one: %w", ErrMalformed)
	case length == 126:
		header += 2
	case length == 127:
		header += 8
	}
	if len(b) < header {
		return 0, nil
	}
	switch header {
	case 4:
		length = uint64(binary.BigEndian.Uint16(b[2:]))
	case 10:
		length = binary.BigEndian.Uint64(b[2:])
	}
	opcode := b[0] & socketOpcode
	switch {
	case opcode < socketControl && (opcode != socketText || b[0]&socketFinal == 0):
		return 0, fmt.Errorf("read WebSocket: a message that is not text, or in several frames: %w", ErrMalformed)
	case length > MaxSize:
		return 0, fmt.Errorf("read WebSocket: %w", tooLarge(MaxSize))
	case uint64(len(b)-header) < length:
		return 0, nil
	}
	n := header + int(length)
	if opcode >= socketControl {
		return n, nil
	}
	return n, take(b[header:n])
}
