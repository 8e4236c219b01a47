package limits

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// BodyTimeout is how long a client may send nothing of a body that it owes.
	BodyTimeout = time.Minute

	// MaxBodies is how many bodies of callers with credentials of their own may be on
	// the way at the same time; each holds up to maxReplay, or as much on its way out.
	// Those of clients that do not dawdle are there within milliseconds.
	MaxBodies = 128
)

// ErrBodyTimeout is returned by reads of a body that has stopped arriving, or that was
// evicted.
var ErrBodyTimeout = errors.New("no more of the request's body has arrived for too long")

// timedBody is a request's body that ends its request when it stops arriving while
// somebody reads it. How long an upstream takes over it does not matter.
//
// A connection's read deadline is set only once that has happened: net/http reads
// on behind a body that is whole, to learn whether the client is still there, and
// takes a deadline that ends this for one that is not. A watch, or an upgraded
// connection, would be cut.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
	timeout time.Duration

	mu       sync.Mutex
	timer    *time.Timer
	due      time.Time // of the read under way, or zero
	complete bool
	timedOut bool
	ended    bool   // the connection is no longer this request's
	leave    func() // the crowd, when the body is whole; nil: it is in none
}

// WithBodyTimeout returns r with a body that may not stall, and what to call at the end
// of the request.
func WithBodyTimeout(w http.ResponseWriter, r *http.Request, limit time.Duration) (watched *http.Request, end func()) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, func() {}
	}
	b := &timedBody{ReadCloser: r.Body, control: http.NewResponseController(w), timeout: limit}
	watched = r.WithContext(r.Context()) // net/http looks at its own request's body when it answers
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

// AddBody has r's body, which watchBody has made, count until it is whole or the
// request ends.
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

// evict is stall at once, also while nobody reads.
func (b *timedBody) evict() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended || b.complete {
		return
	}
	b.timedOut = true
	if !b.due.IsZero() {
		_ = b.control.SetReadDeadline(time.Now()) // as in stall
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

// end leaves a bound on what net/http may yet read: what is left of a body, so that
// the connection can be used again. It takes the bound off before the next request.
func (b *timedBody) end(protocol int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	if !b.complete && !b.timedOut && protocol == 1 {
		_ = b.control.SetReadDeadline(time.Now().Add(b.timeout)) // as above
	}
}
