package fuzzcache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// get reads one object, and holds the answer against all that the user has seen of it.
func (c *client) get(ctx context.Context, r *rand.Rand) {
	res, namespace, name := c.anObject(r)
	if res == widgets && r.IntN(3) == 0 {
		name = nameOf(widgets, objects+r.IntN(still))
	}
	f := forms[r.IntN(len(forms))]
	c.getOne(ctx, res, namespace, name, f)
}

func (c *client) anObject(r *rand.Rand) (res *resource, namespace, name string) {
	namespace = c.namespaces[r.IntN(len(c.namespaces))]
	if namespace == "" {
		namespace = []string{first, second}[r.IntN(2)]
	}
	res = []*resource{configMaps, configMaps, secrets, pods, widgets}[r.IntN(5)]
	return res, namespace, nameOf(res, r.IntN(objects))
}

func (c *client) getOne(ctx context.Context, res *resource, namespace, name string, f *form) {
	key := namespace + "/" + name
	path := res.path(namespace) + "/" + name
	what := fmt.Sprintf("GET %s as %s", path, f.name)
	floor, tables := c.sight.object(res, namespace, name), c.sight.inTables(res, namespace, name)
	refused := c.sight.isRefused(path)
	known := c.sight.wasRead(path + " as " + f.kind)
	a := c.do(ctx, http.MethodGet, path, f.accept(false), "", nil)
	c.noteAccess(path, a, refused, what)
	if a.weather == offline && known && !c.revocable {
		answered := a.code == http.StatusOK || a.code == http.StatusNotFound
		c.w.did(map[bool]string{true: "gets offline of what was read before: answered", false: "gets offline of what was read before: refused"}[answered])
	}
	if !c.usual(ctx, what, a, http.StatusOK, http.StatusNotFound) {
		return
	}
	c.w.did("gets, " + a.weather.String())
	if a.code == http.StatusNotFound {
		c.judgeAbsence(what, res, key, floor, tables, a)
		return
	}
	got, err := decodeState(a.body, 0)
	if err != nil {
		c.w.report("an object that cannot be read", "%s, %s: %v: %v", c.name, what, err, a)
		return
	}
	c.judgeHeader(what, f, a)
	if a.weather == offline && got.metadata != f.metadata() {
		c.w.report("an object in a form that was not asked for", "%s, %s: only metadata: %t", c.name, what, got.metadata)
	}
	if c.judgeState(what, res, key, got, floor, a) {
		in := c.sight.objects
		if got.table {
			in = c.sight.tables
		}
		c.sight.raise(in, objectKey(res.name, key), got.rev, a.began, a.ended)
		if a.weather != offline && !got.table {
			c.sight.noteRead(path+" as "+f.kind, a.ended)
		}
	}
}

// judgeState looks whether an object was like that at some time after what was seen.
func (c *client) judgeState(what string, res *resource, key string, got *state, floor int64, a *answer) bool {
	if err := c.w.history.await(got.rev); err != nil {
		c.w.report("a version that etcd never had", "%s, %s, %v: %v", c.name, what, a.weather, err)
		return false
	}
	if got.key() != key {
		c.w.report("another object than the one asked for", "%s, %s, %v: %v", c.name, what, a.weather, got)
		return false
	}
	changes := c.w.history.of(res.name, key)
	expected := stateAt(changes, got.rev)
	if !c.explains(expected, got, a.weather) {
		c.w.report("an object as it never was", "%s, %s, %v:\n\t\tgot  %v\n\t\twant %v\n\t\t%s", c.name, what, a.weather, got, expected, c.w.metadataDifference(res, got, a.body))
		return false
	}
	for _, change := range changes {
		if change.rev > got.rev && change.rev <= floor {
			kind := "an object that is older than what was seen"
			if change.after == nil || change.after.uid != got.uid {
				kind = "an object that is back although it was seen to be gone"
			}
			c.w.report(kind, "%s, %s, %v: %v, but seen was %d, and at %d it was %v%s", c.name, what, a.weather, got, floor, change.rev, change.after, c.sight.whence(res, got.namespace, got.name))
			return false
		}
	}
	return c.judgeReport(what, expected, got, a)
}

// judgeAbsence looks whether an object was absent at some time after what was seen. What only tables have
// shown has to come before it, but does not count for later answers, as it does not for an object that is there.
func (c *client) judgeAbsence(what string, res *resource, key string, objects, tables int64, a *answer) {
	floor := max(objects, tables)
	// The answer names no version: what etcd had when it came has to be known.
	absent := c.absentSince(res, key, floor)
	if absent == 0 {
		if rev, err := c.w.revision(c.w.t.Context()); err == nil && c.w.history.await(rev) == nil {
			absent = c.absentSince(res, key, floor)
		}
	}
	if absent == 0 {
		c.w.report("404 for an object that was there all the time", "%s, %s, %v: seen was %d; it is %v", c.name, what, a.weather, floor, stateAt(c.w.history.of(res.name, key), c.w.history.now()))
		return
	}
	c.sight.raise(c.sight.objects, objectKey(res.name, key), c.absentSince(res, key, objects), a.began, a.ended)
}

// absentSince is the first revision from floor on at which an object was absent, as far as
// is known; 0: none.
func (c *client) absentSince(res *resource, key string, floor int64) int64 {
	changes := c.w.history.of(res.name, key)
	if floor > 0 && stateAt(changes, floor) == nil {
		return floor
	}
	if floor == 0 {
		return 1
	}
	for _, change := range changes {
		if change.rev > floor && change.after == nil {
			return change.rev
		}
	}
	return 0
}

// gone notes that the user's own DELETE of an object was carried out.
func (c *client) gone(res *resource, key, uid string, asked, at time.Time) {
	rev, err := c.w.revision(c.w.t.Context())
	if err != nil || c.w.history.await(rev) != nil {
		return
	}
	for _, change := range c.w.history.of(res.name, key) {
		if change.after == nil && change.before != nil && change.before.uid == uid {
			c.sight.raise(c.sight.objects, objectKey(res.name, key), change.rev, asked, at)
			return
		}
	}
	c.w.report("a DELETE that was answered with 200 and never happened", "%s: %s %s, uid %s", c.name, res.name, key, uid)
}
