package images

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// awaitPeriod is how often AwaitBytes looks: at 5 MB/s, every 10 kB.
const awaitPeriod = 2 * time.Millisecond

// Request is what became of one request.
type Request struct {
	Time      time.Time
	Method    string
	Path      string
	Range     string // as the client has sent it
	UserAgent string
	// User is who the client claims to be, also when the password is wrong.
	User string
	// Status is 0 while there is no answer.
	Status int
	// Digest is that of the blob or manifest that was asked for, as far as the
	// registry has it.
	Digest string
	// Bytes of the answer's body have been sent, of a blob without an end so far.
	Bytes int64
}

// traffic is what was asked and served.
type traffic struct {
	mu       sync.Mutex
	requests []*Request
	bytes    map[string]int64 // by digest
	total    int64
}

func newTraffic() traffic { return traffic{bytes: map[string]int64{}} }

// Requests are all requests so far, in the order of their arrival; those under way
// as far as they are.
func (r *Registry) Requests() []Request {
	t := &r.traffic
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Request, len(t.requests))
	for i, one := range t.requests {
		all[i] = *one
	}
	return all
}

// BytesOf is how many bytes have been sent of a blob or a manifest, in all answers
// together.
func (r *Registry) BytesOf(digest v1.Hash) int64 {
	r.traffic.mu.Lock()
	defer r.traffic.mu.Unlock()
	return r.traffic.bytes[digest.String()]
}

// Bytes is how many bytes have been sent of all blobs and manifests.
func (r *Registry) Bytes() int64 {
	r.traffic.mu.Lock()
	defer r.traffic.mu.Unlock()
	return r.traffic.total
}

// AwaitBytes returns when BytesOf is at least n.
func (r *Registry) AwaitBytes(ctx context.Context, digest v1.Hash, n int64) error {
	ticker := time.NewTicker(awaitPeriod)
	defer ticker.Stop()
	for r.BytesOf(digest) < n {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("the registry has sent %d bytes of %s, not %d: %w", r.BytesOf(digest), digest, n, context.Cause(ctx))
		}
	}
	return nil
}

// Forget empties Requests and sets all counts to 0.
func (r *Registry) Forget() {
	t := &r.traffic
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests, t.bytes, t.total = nil, map[string]int64{}, 0
}

func (t *traffic) begin(req *http.Request) *Request {
	entry := &Request{
		Time:      time.Now(),
		Method:    req.Method,
		Path:      req.URL.Path,
		Range:     req.Header.Get("Range"),
		UserAgent: req.UserAgent(),
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests = append(t.requests, entry)
	return entry
}

func (t *traffic) user(entry *Request, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entry.User = name
}

func (t *traffic) answered(entry *Request, status int, digest string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entry.Status, entry.Digest = status, digest
}

func (t *traffic) sent(entry *Request, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entry.Bytes += int64(n)
	if entry.Digest != "" {
		t.bytes[entry.Digest] += int64(n)
		t.total += int64(n)
	}
}
