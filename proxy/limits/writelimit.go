package limits

import (
	"net/http"
	"time"
)

const (
	// MaxUnread is how many answers to callers with credentials of their own may stand
	// still at the same time for longer than unreadPatience.
	MaxUnread = 64
	// UnreadGrace is how long a write may wait for its client, however many there are.
	UnreadGrace = 2 * time.Second

	// maxWrite is how many bytes are written at once, so that a client is not taken
	// for one that does not read only because it reads a large object.
	maxWrite = 64 << 10
)

// ResponseWriter is a response whose writes join a crowd. What follows a write that failed is
// none: a response that was cut would count as one more, and another be cut for it.
type ResponseWriter struct {
	http.ResponseWriter
	control  *http.ResponseController
	eviction *Eviction
	err      error // of the write that failed
}

// NewResponseWriter returns w with writes and flushes that c counts while they wait for
// the client, and ends where it evicts them.
func NewResponseWriter(w http.ResponseWriter, c *Eviction) *ResponseWriter {
	return &ResponseWriter{ResponseWriter: w, control: http.NewResponseController(w), eviction: c}
}

// Unwrap is for http.ResponseController.
func (u *ResponseWriter) Unwrap() http.ResponseWriter { return u.ResponseWriter }

func (u *ResponseWriter) Write(p []byte) (written int, err error) {
	for more := true; more && err == nil; more = written < len(p) {
		err = u.wait(func() error {
			n, err := u.ResponseWriter.Write(p[written:min(len(p), written+maxWrite)])
			written += n
			return err
		})
	}
	return written, err
}

// FlushError is for http.ResponseController.
func (u *ResponseWriter) FlushError() error { return u.wait(u.control.Flush) }

// wait runs fn, which may wait for the client.
func (u *ResponseWriter) wait(fn func() error) error {
	if u.err != nil {
		return u.err
	}
	defer u.eviction.Add(u.evict)()
	u.err = fn()
	return u.err
}

// evict ends the connection, or the HTTP/2 stream.
func (u *ResponseWriter) evict() { _ = u.control.SetWriteDeadline(time.Now()) } // fails where it is gone
