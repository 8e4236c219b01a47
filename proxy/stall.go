package proxy

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// bodyStall is how long a client may send nothing of a body that it owes.
	bodyStall = time.Minute

	// maxArriving is how many bodies of callers with credentials of their own may be on
	// the way at the same time; each holds up to maxReplay, or as much on its way out.
	// Those of clients that do not dawdle are there within milliseconds.
	maxArriving = 128
)

var errStalled = errors.New("no more of the request's body has arrived for too long")

// arriving is a request's body that ends its request when it stops arriving while
// somebody reads it. How long an upstream takes over it does not matter.
//
// A connection's read deadline is set only once that has happened: net/http reads
// on behind a body that is whole, to learn whether the client is still there, and
// takes a deadline that ends this for one that is not. A watch, or an upgraded
// connection, would be cut.
type arriving struct {
	io.ReadCloser
	control *http.ResponseController
	limit   time.Duration

	mu      sync.Mutex
	timer   *time.Timer
	due     time.Time // of the read under way, or zero
	whole   bool
	stalled bool
	ended   bool   // the connection is no longer this request's
	leave   func() // the crowd, when the body is whole; nil: it is in none
}

// watchBody returns r with a body that may not stall, and what to call at the end
// of the request.
func watchBody(w http.ResponseWriter, r *http.Request, limit time.Duration) (watched *http.Request, end func()) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, func() {}
	}
	b := &arriving{ReadCloser: r.Body, control: http.NewResponseController(w), limit: limit}
	watched = r.WithContext(r.Context()) // net/http looks at its own request's body when it answers
	watched.Body = b
	return watched, func() { b.end(r.ProtoMajor) }
}

func (b *arriving) Read(p []byte) (int, error) {
	if err := b.begin(); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	return n, b.done(err)
}

func (b *arriving) begin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stalled {
		return errStalled
	}
	b.due = time.Now().Add(b.limit)
	if b.timer == nil {
		b.timer = time.AfterFunc(b.limit, b.stall)
	} else {
		b.timer.Reset(b.limit)
	}
	return nil
}

func (b *arriving) done(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due = time.Time{}
	b.timer.Stop()
	if b.stalled {
		return errStalled
	}
	if errors.Is(err, io.EOF) {
		b.whole = true
		if b.leave != nil {
			b.leave()
		}
	}
	return err
}

// joinArriving has r's body, which watchBody has made, count until it is whole or the
// request ends.
func joinArriving(r *http.Request, c *crowd) (leave func()) {
	b, ok := r.Body.(*arriving)
	if !ok {
		return func() {}
	}
	leave = c.join(b.cut)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave = leave
	return leave
}

// cut is stall at once, also while nobody reads.
func (b *arriving) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended || b.whole {
		return
	}
	b.stalled = true
	if !b.due.IsZero() {
		_ = b.control.SetReadDeadline(time.Now()) // as in stall
	}
}

// stall ends the read under way, if it is still the one that the timer was for.
func (b *arriving) stall() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended || b.due.IsZero() || time.Now().Before(b.due) {
		return
	}
	b.stalled = true
	_ = b.control.SetReadDeadline(time.Now()) // fails where the connection is gone
}

// end leaves a bound on what net/http may yet read: what is left of a body, so that
// the connection can be used again. It takes the bound off before the next request.
func (b *arriving) end(protocol int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	if !b.whole && !b.stalled && protocol == 1 {
		_ = b.control.SetReadDeadline(time.Now().Add(b.limit)) // as above
	}
}
