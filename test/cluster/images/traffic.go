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
	Method, Path, UserAgent string
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
	entry := &Request{Method: req.Method, Path: req.URL.Path, UserAgent: req.UserAgent()}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests = append(t.requests, entry)
	return entry
}

// answer is the answer to one request: counted, at the registry's rate, and cut
// where that has been asked for.
type answer struct {
	http.ResponseWriter
	registry *Registry
	request  *http.Request
	entry    *Request
	begun    bool // the header is written
	cut      *cut // nil: none
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) WriteHeader(status int) {
	if !a.begun {
		a.begun = true
		digest := ""
		if status < http.StatusMultipleChoices {
			digest = a.Header().Get("Docker-Content-Digest")
		}
		if a.request.Method == http.MethodGet && digest != "" {
			a.cut = a.registry.faults.nextCut(digest)
		}
		a.registry.traffic.note(func(*traffic) { a.entry.Status, a.entry.Digest = status, digest })
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if !a.begun {
		a.WriteHeader(http.StatusOK)
	}
	sent := 0
	for sent < len(p) {
		chunk := p[sent:min(sent+answerChunk, len(p))]
		if a.cut != nil {
			chunk = chunk[:min(int64(len(chunk)), a.cut.after)]
		}
		if err := a.registry.faults.limit.WaitN(a.request.Context(), len(chunk)); err != nil {
			return sent, err
		}
		n, err := a.ResponseWriter.Write(chunk)
		sent += n
		a.registry.traffic.note(func(t *traffic) {
			a.entry.Bytes += int64(n)
			if a.entry.Digest != "" {
				t.bytes[a.entry.Digest] += int64(n)
				t.total += int64(n)
			}
		})
		if err != nil {
			return sent, err
		}
		if a.cut == nil {
			continue
		}
		if a.cut.after -= int64(n); a.cut.after == 0 {
			return sent, a.cut.make(a.ResponseWriter, a.request)
		}
	}
	return sent, nil
}

// note changes what has been counted, with the lock held.
func (t *traffic) note(change func(*traffic)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(t)
}
