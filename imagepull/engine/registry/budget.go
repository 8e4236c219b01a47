package registry

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engine/imagecontent"
)

const (
	// PieceSize is how many bytes of a blob are read at once. They are given to containerd before
	// more are read, so that little is lost when the hub is killed.
	PieceSize = 128 << 10
	// MinRate is how many bytes a second a registry must send on average. GPRS, the slowest link of
	// an edge node, carries 3 to 5 kB a second, and a congested 2G cell still more than 1 kB. A
	// slower registry only delays others: 20 MB would take six hours.
	MinRate = 1 << 10
	// DefaultWindow is the time over which MinRate is measured, and how long a registry may send
	// nothing, before an answer or within a blob. The kubelet's pulls give up after five minutes,
	// CRI's default; a slow link that works at all carries 60 kB in one.
	DefaultWindow = time.Minute
	// slackWindows is how many windows one pull may wait in all, beyond the time that MinRate grants
	// for received bytes. It is for answers without size, such as those to HEAD, tokens and
	// redirects. An image of 40 layers needs some 100 round trips, which take three minutes over a
	// satellite.
	slackWindows = 10
	// waitAtMost is how long one pull may wait in all, whatever it receives. The next pull resumes it,
	// but other images have their turn before.
	waitAtMost = 6 * time.Hour
	// requestsAtMost bounds the requests of one pull, besides one for each PieceSize received. It
	// suffices to request all blobs of the largest image twice, with a redirect and a refused token.
	requestsAtMost = 8 * imagecontent.MaxLayers
)

// stall is why a connection is closed that is open and carries too little.
type stall string

func (s stall) Error() string { return string(s) }

const (
	errStalled = stall("it sent nothing any more")
	errSlow    = stall("it sends less than 1 kB a second, or was waited for too long")
)

var errTooManyRequests = errors.New("the pull took more requests than any image needs")

// budget bounds how long one pull waits for its registry, and its number of requests. Time that is
// spent on the bandwidth limit, or while containerd writes, does not count. It is safe for
// concurrent use.
type budget struct {
	window time.Duration

	mu       sync.Mutex
	waited   time.Duration
	got      int64 // bytes
	requests int64
}

// add counts a read, and reports whether the budget is used up.
func (p *budget) add(waited time.Duration, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waited += waited
	p.got += int64(n)
	return p.leftLocked() <= 0
}

func (p *budget) leftLocked() time.Duration {
	granted := slackWindows*p.window + time.Duration(p.got)*(time.Second/MinRate)
	return min(granted, waitAtMost) - p.waited
}

// ask counts a request and returns how long the answer may take.
func (p *budget) ask() (time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.leftLocked()
	switch {
	case p.requests >= requestsAtMost+p.got/PieceSize:
		return 0, errTooManyRequests
	case left <= 0:
		return 0, errSlow
	}
	p.requests++
	return left, nil
}

// roundTrip waits for an answer until the budget is used up.
func (p *budget) roundTrip(next http.RoundTripper, request *http.Request, cancel context.CancelCauseFunc) (*http.Response, error) {
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

// Pace compares one body with MinRate.
type Pace struct {
	waited time.Duration
	got    int64
}

// Slow counts a read, and reports whether a window has ended with too few bytes.
func (p *Pace) Slow(waited time.Duration, n int, window time.Duration) bool {
	p.waited += waited
	p.got += int64(n)
	if p.waited < window {
		return false
	}
	slow := p.got < int64(p.waited.Seconds()*MinRate)
	*p = Pace{}
	return slow
}
