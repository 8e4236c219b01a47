package cache

import (
	"context"
	"maps"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/derived"
	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/view"
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

// atAnyVersion answers a GET or LIST that accepts any state without the cloud, or returns nil.
func (x *exchange) atAnyVersion() *http.Response {
	if x.query == nil || !x.who.isNode() || !x.query.AnyVersion() || x.cache.opts.Withheld() != "" {
		return nil
	}
	if x.cache.up.IsUndecided(x.req.Context()) {
		return x.early()
	}
	return x.watched()
}

// watched answers from a view that a watch keeps current. The node's watches prove that it may read what it is
// answered, as long as an apiserver lets them go on. The user of a token may have watches open that were authorized
// by another token.
func (x *exchange) watched() *http.Response {
	if !x.cache.opts.ServeWatched || !x.cache.isUp() || x.cache.unversioned.has(x.extent()) {
		return nil
	}
	res := x.ask().Current()
	if res != nil {
		x.cache.metrics.watched(x.info)
	}
	return res
}

// unversioned are objects of which the node has lately been shown something at a version that the hub does not
// know: by a deletion or a 404, by a subresource, or by a write that was answered in a form that is not decoded. A
// watch may have come only to an earlier state. The zero value is ready. It is safe for concurrent use.
type unversioned struct {
	mu    sync.Mutex
	since map[extent]time.Time
}

// extent is an object by its name in views, all of a resource without a name, and everything without a resource.
type extent struct {
	resource schema.GroupResource
	name     string
}

func (e extent) overlaps(other extent) bool {
	return e == extent{} || e.resource == other.resource && (e.name == other.name || e.name == "" || other.name == "")
}

// catchUp is how long a watch, which shows signs of life at least that often, has to come to such a state.
const catchUp = view.MaxSilence

// maxUnversioned bounds how many there are. Beyond it everything counts: a program may ask for any name.
const maxUnversioned = 1000

func (u *unversioned) add(e extent) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.since) >= maxUnversioned {
		u.expireLocked()
	}
	if len(u.since) >= maxUnversioned {
		e = extent{}
	}
	if u.since == nil {
		u.since = map[extent]time.Time{}
	}
	u.since[e] = time.Now()
}

// settle removes an object of which an answer at a known version shows the newest state, if it was asked for later.
func (u *unversioned) settle(e extent, asked time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if since, ok := u.since[e]; ok && since.Before(asked) {
		delete(u.since, e)
	}
}

// has reports whether something of e is among them.
func (u *unversioned) has(e extent) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.expireLocked()
	for one := range u.since {
		if one.overlaps(e) {
			return true
		}
	}
	return false
}

func (u *unversioned) expireLocked() {
	maps.DeleteFunc(u.since, func(_ extent, since time.Time) bool { return time.Since(since) >= catchUp })
}

// showsUnversioned records that the node is shown something of the request's object, or of its resource if it
// names none, at a version that the hub does not know.
func (x *exchange) showsUnversioned() {
	if x.who.isNode() {
		x.cache.unversioned.add(x.extent())
	}
}

// extent returns what the request is about: one object, or a resource.
func (x *exchange) extent() extent {
	e := extent{resource: x.resource().GroupResource()}
	if x.info.Name != "" {
		e.name = x.named().Member()
	}
	return e
}

// isVersioned reports whether the answer to a request that does not read objects shows the state of an object
// at a version that the hub gets to know.
func (x *exchange) isVersioned(res *http.Response) bool {
	i := x.info
	if i.Verb == "deletecollection" || x.params.Broken || i.Subresource != "" && (i.Subresource != "status" || x.req.Method == http.MethodGet) {
		return false
	}
	return negotiation.Answered(x.req.Header.Get("Accept"), res.Header.Get("Content-Type")).Cacheable()
}

// early answers while it is not known whether the cloud is there.
func (x *exchange) early() *http.Response {
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
