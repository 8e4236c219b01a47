package limits

import (
	"net/http"
	"sync"
	"time"
)

const (
	// MaxUnread is how many responses to callers with credentials of their own may wait for
	// their clients at the same time for longer than UnreadGrace.
	MaxUnread = 64
	// UnreadGrace is how long any write may wait for its client.
	UnreadGrace = 2 * time.Second

	// maxWrite is how many bytes are written at once, so that a client that reads a large
	// object is not mistaken for one that does not read.
	maxWrite = 64 << 10
)

// ResponseWriter is a response whose writes are subject to an Eviction. After a failed write it
// writes nothing: an evicted response would otherwise wait again, and evict another one.
type ResponseWriter struct {
	http.ResponseWriter
	control  *http.ResponseController
	eviction *Eviction
	err      error // of the first failed write

	mu      sync.Mutex
	waiting bool // for the client; the response must not be used by others otherwise
}

// NewResponseWriter returns w with writes and flushes that are added to c while they wait for the
// client.
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

// wait runs fn, which may block on the client.
func (u *ResponseWriter) wait(fn func() error) error {
	if u.err != nil {
		return u.err
	}
	u.setWaiting(true)
	defer u.setWaiting(false)
	defer u.eviction.Add(u.evict)()
	u.err = fn()
	return u.err
}

func (u *ResponseWriter) setWaiting(waiting bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.waiting = waiting
}

// evict ends the connection, or the HTTP/2 stream. It may be called when the write has ended, and
// the handler with it: net/http has taken the response back then, and may have given the
// connection to another request.
func (u *ResponseWriter) evict() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.waiting {
		_ = u.control.SetWriteDeadline(time.Now()) // fails if it has ended
	}
}
