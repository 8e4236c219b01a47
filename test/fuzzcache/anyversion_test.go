package fuzzcache

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
)

// byHub reports whether the hub has answered by itself: an apiserver names its answers for the audit.
func (a *answer) byHub() bool { return a.code != 0 && a.header.Get("Audit-Id") == "" }

const answeredCalm = "gets, fair, answered by the hub"

// getAny reads one object at any version. What an apiserver remembers may be older than what was
// seen, but what the hub answers by itself may not.
func (c *client) getAny(ctx context.Context, r *rand.Rand) {
	res, namespace, name := c.anObject(r)
	f := forms[r.IntN(len(forms))]
	if f.table() {
		return
	}
	object := res.path(namespace) + "/" + name
	path, refused := object+"?resourceVersion=0", c.sight.isRefused(object)
	what, floor := fmt.Sprintf("GET %s as %s", path, f.name), c.sight.object(res, namespace, name)
	a := c.do(ctx, http.MethodGet, path, f.accept(false), "", nil)
	c.noteAccess(object, a, refused, what)
	if !c.usual(ctx, what, a, http.StatusOK, http.StatusNotFound) || a.code != http.StatusOK {
		return
	}
	got, err := decodeState(a.body, 0)
	if err != nil {
		c.w.report("an object that cannot be read", "%s, %s: %v: %v", c.name, what, err, a)
		return
	}
	c.judgeHeader(what, f, a)
	if !a.byHub() {
		floor = 0
	} else if a.weather == fair {
		c.w.did(answeredCalm)
	}
	if !got.table && c.judgeState(what, res, namespace+"/"+name, got, floor, a) {
		c.sight.raise(c.sight.objects, objectKey(res.name, got.key()), got.rev, a.began, a.ended)
	}
}

// floors are the revisions of which a user has seen single objects of a resource, by key.
func (s *sight) floors(r *resource) map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := maps.Collect(func(yield func(string, int64) bool) {
		for name, f := range s.objects {
			if key, ok := strings.CutPrefix(name, objectKey(r.name, "")); ok && !yield(key, f.now()) {
				return
			}
		}
	})
	return all
}

// judgeAny looks whether a list at any version, if the hub has answered it, is as new as what was seen
// before of all that it shows, or should.
func (c *client) judgeAny(what string, q *query, f *form, l *listing, view int64, floors map[string]int64, a *answer) {
	if !a.byHub() || a.weather != fair || l.table {
		return
	}
	c.w.did("lists, fair, answered by the hub")
	if l.rev < view {
		c.w.report("a list by the hub that is older than what was seen", "%s, %s as %s: it is at %d, seen was %d", c.name, what, f.name, l.rev, view)
	}
	for key, floor := range floors {
		for _, change := range c.w.history.of(q.resource.name, key) {
			shown := change.before != nil && q.selects(change.before) || change.after != nil && q.selects(change.after)
			if change.rev > l.rev && change.rev <= floor && shown {
				c.w.report("a list by the hub that is older than an object that was seen", "%s, %s: it is at %d; of %s, %d was seen", c.name, what, l.rev, key, floor)
			}
		}
	}
}
