package limits

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// BodyTimeout is how long a client may send nothing of an incomplete body.
	BodyTimeout = time.Minute

	// MaxBodies is how many bodies of callers with credentials of their own may be incomplete
	// at the same time; each uses up to MaxReplay bytes. Normal clients send theirs within
	// milliseconds.
	MaxBodies = 128
)

// ErrBodyTimeout is returned by reads of a body that has stopped arriving, or that was
// evicted.
var ErrBodyTimeout = errors.New("no more of the request's body has arrived for too long")

// timedBody is a request's body that fails its request if it stops arriving while it is read.
// The time that an upstream needs does not count.
//
// The connection's read deadline is set only after the timeout: net/http continues to read
// after a complete body to detect that the client disconnects, and a deadline would look like
// that. It would cut watches and upgraded connections.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
	timeout time.Duration

	mu       sync.Mutex
	timer    *time.Timer
	due      time.Time // of the current read, or zero
	complete bool
	timedOut bool
	ended    bool   // the connection is no longer this request's
	leave    func() // leaves the Eviction when the body is complete; nil: not in one
}

// WithBodyTimeout returns r with a body that times out. The caller must call end at the end of
// the request.
func WithBodyTimeout(w http.ResponseWriter, r *http.Request, limit time.Duration) (watched *http.Request, end func()) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, func() {}
	}
	b := &timedBody{ReadCloser: r.Body, control: http.NewResponseController(w), timeout: limit}
	watched = r.WithContext(r.Context()) // net/http uses the body of its own request when it answers
	watched.Body = b
	return watched, func() { b.end(r.ProtoMajor) }
}

func (b *timedBody) Read(p []byte) (int, error) {
	if err := b.begin(); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	return n, b.done(err)
}

func (b *timedBody) begin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timedOut {
		return ErrBodyTimeout
	}
	b.due = time.Now().Add(b.timeout)
	if b.timer == nil {
		b.timer = time.AfterFunc(b.timeout, b.expire)
	} else {
		b.timer.Reset(b.timeout)
	}
	return nil
}

func (b *timedBody) done(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due = time.Time{}
	b.timer.Stop()
	if b.timedOut {
		return ErrBodyTimeout
	}
	if errors.Is(err, io.EOF) {
		b.complete = true
		if b.leave != nil {
			b.leave()
		}
	}
	return err
}

// AddBody adds r's body, which WithBodyTimeout has set, to an Eviction until it is complete or
// the request ends.
func AddBody(r *http.Request, c *Eviction) (leave func()) {
	b, ok := r.Body.(*timedBody)
	if !ok {
		return func() {}
	}
	leave = c.Add(b.evict)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave = leave
	return leave
}

// evict ends the request at once, also between reads.
func (b *timedBody) evict() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended || b.complete {
		return
	}
	b.timedOut = true
	if !b.due.IsZero() {
		_ = b.control.SetReadDeadline(time.Now()) // as in expire
	}
}

// expire ends the read under way, if it is still the one that the timer was for.
func (b *timedBody) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended || b.due.IsZero() || time.Now().Before(b.due) {
		return
	}
	b.timedOut = true
	_ = b.control.SetReadDeadline(time.Now()) // fails where the connection is gone
}

// end ends the timeouts of reads. net/http may then read the rest of the body, so that the
// connection can be used again; a deadline, which net/http removes before the next request,
// bounds that.
func (b *timedBody) end(protocol int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	if !b.complete && !b.timedOut && protocol == 1 {
		_ = b.control.SetReadDeadline(time.Now().Add(b.timeout)) // as above
	}
}

// MaxReplay is the size, in bytes, up to which a request body of known length is buffered, so
// that the request can be sent again after a GOAWAY from an apiserver that has not read it.
// The kubelet's pod and node status patches are smaller; larger bodies are streamed.
const MaxReplay = 256 << 10

// BufferBody makes the body of r replayable if it is small. It fails if the client disconnects
// before the end of the body.
func BufferBody(r *http.Request) error {
	if r.Body == nil || r.ContentLength <= 0 || r.ContentLength > MaxReplay {
		return nil
	}
	held := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, held); err != nil {
		return err
	}
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(held)), nil }
	r.Body, _ = r.GetBody()
	return nil
}
