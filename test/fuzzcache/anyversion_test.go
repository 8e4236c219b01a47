package fuzzcache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
)

// byHub reports whether the hub has answered by itself: an apiserver names its answers for the audit.
func (a *answer) byHub() bool { return a.code != 0 && a.header.Get("Audit-Id") == "" }

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
	if !a.byHub() { // two apiservers remember differently
		floor = 0
	}
	if !got.table && c.judgeState(what, res, namespace+"/"+name, got, floor, a) {
		c.sight.raise(c.sight.objects, objectKey(res.name, got.key()), got.rev, a.began, a.ended)
	}
}
