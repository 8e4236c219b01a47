package fuzzcache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// viewKey is what is listed and in which form: what a user has seen of it never goes back.
func viewKey(q *query, f *form) string { return q.String() + " as " + f.kind }

// list asks for a query in some way, and holds the answer against etcd's history.
func (c *client) list(ctx context.Context, r *rand.Rand) {
	q, f := c.queries[r.IntN(len(c.queries))], forms[r.IntN(len(forms))]
	c.listAs(ctx, r, q, f)
}

// listAs returns what was listed; ok is false where that is not known.
func (c *client) listAs(ctx context.Context, r *rand.Rand, q *query, f *form) (items map[string]*state, rev int64, ok bool) {
	floor := c.sight.view(viewKey(q, f))
	version, match := "", ""
	exact := int64(0)
	switch r.IntN(10) {
	case 0, 1:
		version = "0"
	case 2, 3:
		if floor > 0 {
			version, match = strconv.FormatInt(floor, 10), "NotOlderThan"
		}
	case 4:
		if exact = max(floor-int64(r.IntN(3)), 0); exact > 0 {
			version, match = strconv.FormatInt(exact, 10), "Exact"
		}
	}
	limit := ""
	if r.IntN(3) == 0 && version != "0" {
		limit = strconv.Itoa(1 + r.IntN(15))
	}
	what := fmt.Sprintf("LIST %s as %s", q.path("resourceVersion", version, "resourceVersionMatch", match, "limit", limit), f.name)
	var all listing
	all, began, last, ok := c.pages(ctx, what, q, f, version, match, limit)
	if !ok {
		return nil, 0, false
	}
	c.w.did("lists, " + last.weather.String())
	switch {
	case exact != 0 && all.rev != exact:
		c.w.report("a list at another version than exactly the one asked for", "%s: it is at %d", what, all.rev)
	case exact == 0 && match != "" && all.rev < floor:
		c.w.report("a list that is older than asked for", "%s: it is at %d", what, all.rev)
	}
	// At "0", an apiserver answers whatever it remembers. Two of them remember differently.
	current := exact == 0 && (version != "0" || last.byHub())
	if current && all.rev < floor {
		c.w.report("a list that is older than what was seen", "%s, %s: it is at %d, seen was %d; %v", c.name, what, all.rev, floor, last.weather)
	}
	whole := *last
	whole.began, whole.weather = began, c.w.weatherOf(began, last.ended)
	if !c.judgeList(what, q, f, &all, &whole) {
		return nil, 0, false
	}
	if all.table {
		c.sawTable(q, all.rev, began, last.ended)
	} else {
		c.saw(q, f, all.items, all.rev, exact == 0, began, last.ended)
	}
	if !all.table && (last.weather == fair || last.weather == foul && began.Before(last.began)) {
		c.sight.noteRead(viewKey(q, f), last.ended)
	}
	items = map[string]*state{}
	for _, s := range all.items {
		items[s.key()] = s
	}
	return items, all.rev, true
}

// pages reads all pages of a list. Its last answer says when it was whole.
func (c *client) pages(ctx context.Context, what string, q *query, f *form, version, match, limit string) (all listing, began time.Time, last *answer, ok bool) {
	known := c.sight.wasRead(viewKey(q, f))
	for next := ""; ; {
		path := q.path("resourceVersion", version, "resourceVersionMatch", match, "limit", limit)
		if next != "" {
			path = q.path("limit", limit, "continue", next)
		}
		refused := c.sight.isRefused(q.String())
		a := c.do(ctx, http.MethodGet, path, f.accept(true), "", nil)
		if next == "" {
			began = a.began
			if a.weather == offline && known && !c.revocable && match == "" {
				c.w.did(map[bool]string{true: "lists offline of what was read before: answered", false: "lists offline of what was read before: refused"}[a.code == http.StatusOK])
				if a.code != http.StatusOK {
					c.w.note("%s: %s: refused offline: %v", c.name, what, a)
				}
			}
		}
		c.noteAccess(q.String(), a, refused, what)
		if !c.usual(ctx, what, a, http.StatusOK, http.StatusGone) || a.code != http.StatusOK {
			return all, began, a, false
		}
		page, err := decodeList(a.body)
		if err != nil {
			c.w.report("a list that cannot be read", "%s, %s: %v: %v", c.name, what, err, a)
			return all, began, a, false
		}
		c.judgeHeader(what, f, a)
		if next != "" && page.rev != all.rev {
			c.w.report("pages of different versions", "%s: %d, then %d", what, all.rev, page.rev)
		}
		if next != "" && (page.metadata != all.metadata || page.table != all.table) {
			return all, began, a, false // another form of what the client accepts
		}
		all.items = append(all.items, page.items...)
		all.rev, all.metadata, all.table = page.rev, page.metadata, page.table
		if next = page.next; next == "" {
			return all, began, a, true
		}
		if limit == "" {
			c.w.report("a page where no limit was asked for", "%s", what)
			return all, began, a, false
		}
	}
}

// noteAccess remembers who was refused what, and finds what is answered all the same.
func (c *client) noteAccess(key string, a *answer, refused bool, what string) {
	switch {
	case a.code == http.StatusForbidden && a.weather != offline:
		c.sight.refuse(key, a.began)
	case a.code == http.StatusOK && a.weather == offline && refused && c.sight.isRefused(key):
		c.w.report("an answer offline to who was refused", "%s: %s: %v", c.name, what, a)
	case a.code == http.StatusOK && a.weather != offline:
		c.sight.allow(key, a.ended)
	}
}

// judgeHeader looks at what is beside the body. net/http has seen to its length.
func (c *client) judgeHeader(what string, f *form, a *answer) {
	got := a.header.Get("Content-Type")
	wanted := asJSON
	if strings.HasPrefix(f.accept(true), asProtobuf) {
		wanted = "" // objects of custom resources come in JSON
	}
	if !strings.HasPrefix(got, wanted) {
		c.w.report("an answer in a form that was not asked for", "%s, %s: %s", c.name, what, got)
	}
	if length := a.header.Get("Content-Length"); length != "" && length != strconv.Itoa(len(a.body)) {
		c.w.report("a wrong Content-Length", "%s, %s: %s for %d bytes", c.name, what, length, len(a.body))
	}
}

// judgeList compares a list with what etcd had at its version.
func (c *client) judgeList(what string, q *query, f *form, l *listing, a *answer) bool {
	under := a.weather
	if err := c.w.history.await(l.rev); err != nil {
		c.w.report("a version that etcd never had", "%s, %s, %v: %v", c.name, what, under, err)
		return false
	}
	if !c.reads(q.namespace) {
		c.w.report("an answer to who may never read this", "%s: %s", c.name, what)
	}
	if under == offline && l.metadata != f.metadata() && !strings.Contains(f.name, "or else") {
		c.w.report("a list in a form that was not asked for", "%s, %s: only metadata: %t", c.name, what, l.metadata)
	}
	want := c.w.history.list(q, l.rev)
	ok := true
	seen := map[string]bool{}
	for _, got := range l.items {
		expected := want[got.key()]
		switch {
		case seen[got.key()]:
			c.w.report("an object that is in a list twice", "%s, %s at %d, %v: %v", c.name, what, l.rev, under, got)
			ok = false
		case expected != nil && c.explains(expected, got, under):
			ok = c.judgeReport(what, expected, got, a) && ok
		case expected == nil:
			c.w.report("an object that should not be in a list", "%s, %s at %d, %v: %v", c.name, what, l.rev, under, got)
			ok = false
		default:
			c.w.report("an object in a list that is not as etcd had it", "%s, %s at %d, %v:\n\t\tgot  %v\n\t\twant %v", c.name, what, l.rev, under, got, expected)
			ok = false
		}
		seen[got.key()] = true
	}
	for key, expected := range want {
		if !seen[key] {
			c.w.report("an object that is missing in a list", "%s, %s at %d, %v: %v", c.name, what, l.rev, under, expected)
			ok = false
		}
	}
	return ok
}

// sawTable notes what a table has shown. The hub does not keep tables, so what it serves may
// be older; but it does not lack an object that a table has shown.
func (c *client) sawTable(q *query, rev int64, asked, at time.Time) {
	c.w.did("lists in tables")
	if q.all() {
		c.sight.raise(c.sight.tables, objectKey(q.resource.name, q.namespace), rev, asked, at)
	}
}

// saw notes what a list has shown: of each object the version that it has there.
func (c *client) saw(q *query, f *form, items []*state, rev int64, latest bool, asked, at time.Time) {
	if latest {
		c.sight.raise(c.sight.views, viewKey(q, f), rev, asked, at)
	}
	for _, s := range items {
		c.sight.raise(c.sight.objects, objectKey(q.resource.name, s.key()), s.rev, asked, at)
	}
	if q.all() {
		c.sight.raise(c.sight.covers, objectKey(q.resource.name, q.namespace), rev, asked, at)
	}
}
