package images

import (
	"context"
	"net/http"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/time/rate"
)

// trouble is what has been set to go wrong.
type trouble struct {
	limit *rate.Limiter

	mu       sync.Mutex
	fail     func(*http.Request) (int, http.Header, bool) // nil: nothing fails
	cuts     map[string][]*cut                            // by digest
	noRanges bool
}

func newTrouble() trouble {
	return trouble{limit: rate.NewLimiter(rate.Inf, answerChunk), cuts: map[string][]*cut{}}
}

// SetRate sends at most so many bytes a second, in all answers together; 0 is the
// start: as fast as it goes.
func (r *Registry) SetRate(bytesPerSecond int) {
	limit := rate.Limit(bytesPerSecond)
	if bytesPerSecond == 0 {
		limit = rate.Inf
	}
	r.trouble.limit.SetLimit(limit)
}

// Fail asks fail about each request before anything else is done with it: with ok,
// the answer is the code and header it returns. A fail that waits for the end of
// the request's context is a registry that does not answer. nil is the start:
// nothing fails.
func (r *Registry) Fail(fail func(*http.Request) (code int, header http.Header, ok bool)) {
	r.trouble.mu.Lock()
	defer r.trouble.mu.Unlock()
	r.trouble.fail = fail
}

// CutAfter cuts the next answer that holds the blob right behind its n-th byte, in
// the given way. Each further call is for one answer more.
func (r *Registry) CutAfter(digest v1.Hash, n int64, way Cut) {
	r.trouble.mu.Lock()
	defer r.trouble.mu.Unlock()
	key := digest.String()
	r.trouble.cuts[key] = append(r.trouble.cuts[key], &cut{after: n, way: way})
}

// IgnoreRanges serves blobs from the start whatever part was asked for, as the
// specification allows. false is the start.
func (r *Registry) IgnoreRanges(ignore bool) {
	r.trouble.mu.Lock()
	defer r.trouble.mu.Unlock()
	r.trouble.noRanges = ignore
}

func (t *trouble) failure(req *http.Request) (int, http.Header, bool) {
	t.mu.Lock()
	fail := t.fail
	t.mu.Unlock()
	if fail == nil {
		return 0, nil, false
	}
	return fail(req)
}

func (t *trouble) nextCut(digest string) *cut {
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.cuts[digest]
	if len(due) == 0 {
		return nil
	}
	t.cuts[digest] = due[1:]
	return due[0]
}

func (t *trouble) ignoresRanges() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.noRanges
}

// pace waits until n bytes more may be sent.
func (t *trouble) pace(ctx context.Context, n int) error { return t.limit.WaitN(ctx, n) }
