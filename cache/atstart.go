package cache

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/cache/derived"
)

// A hub that starts does not know whether the cloud is there, and if packets are swallowed it takes
// seconds to find out. A program that reads with resourceVersion=0 accepts any state that was once
// true, so it need not wait for that: it gets what it would get offline. That is for the node, whose boot waits
// for it. Callers with tokens wait for the cloud or for its loss, as everything else does: over a long line the cloud
// needs longer than contactTimeout, and they would be shown what it has revoked.

// contactTimeout is how long the first of these reads leave the cloud to answer, all together: if it
// is there, its state is newer, in particular after a restart of the hub alone. It is three round
// trips, to connect, for TLS and for the answer, of 30 ms each.
const contactTimeout = 100 * time.Millisecond

// contact finds out whether the cloud is there while clients are answered from the cache. The zero
// value is ready. It is safe for concurrent use.
type contact struct {
	mu    sync.Mutex
	began time.Time     // of the first request
	done  chan struct{} // closed when the request under way has ended; nil: there is none
}

// atStart answers a GET or LIST of the node that accepts any state without the cloud, while it is not known whether
// that is there. Otherwise, and where the cache has no 200, it returns nil.
func (x *exchange) atStart() *http.Response {
	if x.query == nil || !x.who.isNode() || !x.query.AnyVersion() || x.cache.opts.Withheld() != "" || !x.cache.up.IsUndecided(x.req.Context()) {
		return nil
	}
	// Before the loss is known, slices do not follow the node's pods as they did before a restart.
	if derived.IsSlices(x.info.APIGroup, x.info.APIVersion, x.info.Resource) {
		return nil
	}
	if x.cache.makeContact(x.req.Context()); !x.cache.up.IsUndecided(x.req.Context()) {
		return nil
	}
	res, err := x.answer()
	if err != nil {
		return nil
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil
	}
	x.cache.metrics.answered(x.info, nil)
	return res
}

// makeContact has a request of the hub's own on the way to the cloud, and waits for its end, or until
// contactTimeout has passed since the first one. The end need not be an answer.
func (c *Cache) makeContact(ctx context.Context) {
	f := &c.contact
	f.mu.Lock()
	if f.began.IsZero() {
		f.began = time.Now()
	}
	if f.done == nil {
		done := make(chan struct{})
		if c.tasks.start(func(ctx context.Context) { c.ping(ctx, done) }) {
			f.done = done
		}
	}
	done, left := f.done, time.Until(f.began.Add(contactTimeout))
	f.mu.Unlock()
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// ping sends a request that every apiserver answers, whatever it thinks of the caller.
func (c *Cache) ping(ctx context.Context, done chan struct{}) {
	if req, err := http.NewRequestWithContext(ctx, http.MethodGet, "/livez", http.NoBody); err == nil {
		if res, err := c.up.RoundTrip(req); err == nil {
			res.Body.Close()
		}
	}
	c.contact.mu.Lock()
	defer c.contact.mu.Unlock()
	c.contact.done = nil
	close(done)
}
