package proxy

import (
	"net/http"
	"time"
)

const (
	// maxUnread is how many answers to callers with credentials of their own may stand
	// still at the same time for longer than unreadPatience.
	maxUnread      = 64
	unreadPatience = 2 * time.Second

	// maxUnreadWrite is how many bytes are written at once, so that a client is not taken
	// for one that does not read only because it reads a large object.
	maxUnreadWrite = 64 << 10
)

// unread is a response whose writes join a crowd. What follows a write that failed is
// none: a response that was cut would count as one more, and another be cut for it.
type unread struct {
	http.ResponseWriter
	control *http.ResponseController
	crowd   *crowd
	err     error // of the write that failed
}

func newUnread(w http.ResponseWriter, c *crowd) *unread {
	return &unread{ResponseWriter: w, control: http.NewResponseController(w), crowd: c}
}

// Unwrap is for http.ResponseController.
func (u *unread) Unwrap() http.ResponseWriter { return u.ResponseWriter }

func (u *unread) Write(p []byte) (written int, err error) {
	for more := true; more && err == nil; more = written < len(p) {
		err = u.wait(func() error {
			n, err := u.ResponseWriter.Write(p[written:min(len(p), written+maxUnreadWrite)])
			written += n
			return err
		})
	}
	return written, err
}

// FlushError is for http.ResponseController.
func (u *unread) FlushError() error { return u.wait(u.control.Flush) }

// wait runs fn, which may wait for the client.
func (u *unread) wait(fn func() error) error {
	if u.err != nil {
		return u.err
	}
	defer u.crowd.join(u.cut)()
	u.err = fn()
	return u.err
}

// cut ends the connection, or the HTTP/2 stream.
func (u *unread) cut() { _ = u.control.SetWriteDeadline(time.Now()) } // fails where it is gone
