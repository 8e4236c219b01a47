package engine

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

const (
	// minRate is how many bytes a second a registry has to send on average. GPRS, the
	// thinnest line that an edge node is put behind, brings 3 to 5 kB a second, and a
	// congested 2G cell still more than one. A registry that sends less only keeps others
	// from being asked: 20 MB would take six hours.
	minRate = 1 << 10
	// defaultWindow is the time over which minRate is measured, and also how long a
	// registry may send nothing: before an answer, or in the middle of a blob. kubelet's
	// own pulls give up after five minutes, CRI's default; a thin link that works at all
	// delivers 60 kB in one.
	defaultWindow = time.Minute
	// slackWindows is how many windows one pull may spend waiting in all, beyond the time
	// that minRate grants for what has come in. It is for what has no size: answers to
	// HEAD, tokens, redirects. An image of 40 layers needs some 100 round trips, which
	// take three minutes over a satellite.
	slackWindows = 10
	// waitAtMost is how long one pull may wait in all, whatever comes in. The next one goes
	// on from there, but others have their turn before it.
	waitAtMost = 6 * time.Hour
	// requestsAtMost bounds the requests of one pull, beside one for each pieceSize that
	// has come in: as many as the blobs of the largest image, asked for twice over a
	// redirect and a refused token.
	requestsAtMost = 8 * layersAtMost
)

// stall is what ends a connection that is open and brings too little.
type stall string

func (s stall) Error() string { return string(s) }

const (
	errStalled = stall("it sent nothing any more")
	errSlow    = stall("it sends less than 1 kB a second, or was waited for too long")
)

var errTooManyRequests = errors.New("the pull took more requests than any image needs")

// patience bounds how long one pull waits for its registry, and how often it asks. Only
// the time in which nothing but the registry is waited for counts: not that in which a
// bandwidth limit is kept, or containerd writes.
type patience struct {
	window time.Duration

	mu       sync.Mutex
	waited   time.Duration
	got      int64 // bytes
	requests int64
}

// add counts, and reports whether the registry has used up the pull's patience.
func (p *patience) add(waited time.Duration, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waited += waited
	p.got += int64(n)
	return p.leftLocked() <= 0
}

func (p *patience) leftLocked() time.Duration {
	granted := slackWindows*p.window + time.Duration(p.got)*(time.Second/minRate)
	return min(granted, waitAtMost) - p.waited
}

// ask counts a request, and returns how long its answer may take.
func (p *patience) ask() (time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.leftLocked()
	switch {
	case p.requests >= requestsAtMost+p.got/pieceSize:
		return 0, errTooManyRequests
	case left <= 0:
		return 0, errSlow
	}
	p.requests++
	return left, nil
}

// roundTrip waits for an answer, until the pull's patience has ended at the latest.
func (p *patience) roundTrip(next http.RoundTripper, request *http.Request, cancel context.CancelCauseFunc) (*http.Response, error) {
	left, err := p.ask()
	if err != nil {
		return nil, err
	}
	end := time.AfterFunc(left, func() { cancel(errSlow) })
	defer end.Stop()
	start := time.Now()
	response, err := next.RoundTrip(request)
	p.add(time.Since(start), 0)
	if err != nil && errors.Is(context.Cause(request.Context()), errSlow) {
		err = errSlow
	}
	return response, err
}

// pace measures one body against minRate.
type pace struct {
	waited time.Duration
	got    int64
}

// slow reports whether a window has ended in which too little came in.
func (p *pace) slow(waited time.Duration, n int, window time.Duration) bool {
	p.waited += waited
	p.got += int64(n)
	if p.waited < window {
		return false
	}
	slow := p.got < int64(p.waited.Seconds()*minRate)
	*p = pace{}
	return slow
}
