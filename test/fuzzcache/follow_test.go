package fuzzcache

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// follower compares what one watch sends with etcd's history, event by event. It is for
// one goroutine.
//
// The events have to be just those that etcd's history has for the query: none missing,
// none twice, none out of order. One exception is part of the hub's design: where the
// apiservers have forgotten a watch's version, the view is listed, and the difference is
// sent as events. An object's last state stands then for those before it, and DELETED
// events, at the version of the view, come first; what has come and gone meanwhile is in no
// event at all. What was left out is counted, and the next bookmark has to find the client
// with what there is.
type follower struct {
	c    *client
	q    *query
	f    *form
	what string

	mu      sync.Mutex // held while an event is taken
	at      int64      // the client has got every event up to here
	items   map[string]*state
	shown   map[string]bool // objects in items with a status that etcd does not have
	opened  time.Time       // when the watch was asked for
	skipped int             // events that a difference has left out
	lost    bool            // it has to list again
}

func newFollower(c *client, q *query, f *form) *follower {
	return &follower{c: c, q: q, f: f, what: fmt.Sprintf("WATCH %s as %s", q, f.name)}
}

// begin starts from a list.
func (f *follower) begin(items map[string]*state, rev int64) {
	f.items, f.at, f.shown = items, rev, map[string]bool{}
	f.beginShown(rev)
}

// expected is what the history's next change is for the query; "" if it is not seen.
func (f *follower) expected(c *change) watch.EventType {
	before := c.before != nil && f.q.selects(c.before)
	after := c.after != nil && f.q.selects(c.after)
	switch {
	case before && after:
		return watch.Modified
	case after:
		return watch.Added
	case before:
		return watch.Deleted
	}
	return ""
}

// event takes an event. It returns false where the watch cannot be followed any more.
func (f *follower) event(kind watch.EventType, got *state) bool {
	w := f.c.w
	if err := w.history.await(got.rev); err != nil {
		return f.complain("a version that etcd never had", "%s %v: %v", kind, got, err)
	}
	if f.status(kind, got) {
		return true
	}
	if got.rev <= f.at || kind == watch.Deleted && !w.history.changed(f.q.resource, got) {
		return f.difference(kind, got)
	}
	for _, c := range w.history.since(f.q.resource.name, f.at) {
		expected := f.expected(c)
		switch {
		case c.rev > got.rev:
			return f.complain("an event that never was", "%s %v after %d", kind, got, f.at)
		case expected == "":
		case c.rev < got.rev:
			return f.leftOut(c, expected, kind, got)
		case c.key != got.key() || expected != kind && !f.made(kind, got):
			return f.complain("another event than the one that was", "%s %v; it was %s of %s", kind, got, expected, c.key)
		case kind != watch.Deleted && !c.after.same(got):
			return f.complain("an event with another object than there was", "%s\n\t\tgot  %v\n\t\twant %v", kind, got, c.after)
		default:
			f.take(kind, got)
			return true
		}
	}
	return f.complain("an event that never was", "%s %v after %d", kind, got, f.at)
}

func (f *follower) take(kind watch.EventType, got *state) {
	f.at = max(f.at, got.rev)
	delete(f.shown, got.key())
	if kind == watch.Deleted {
		delete(f.items, got.key())
	} else {
		f.items[got.key()] = got
	}
	f.raise(kind, got)
	f.c.w.did("watch events")
}

// raise notes what the user has seen with an event.
func (f *follower) raise(kind watch.EventType, got *state) {
	sight, now := f.c.sight, time.Now()
	in := sight.objects
	if got.table {
		in = sight.tables
		f.c.w.did("watch events in tables")
	} else {
		sight.raise(sight.views, viewKey(f.q, f.f), f.at, f.opened, now)
	}
	if kind != watch.Deleted || f.q.all() { // else it may only have left the selector
		sight.raise(in, objectKey(f.q.resource.name, got.key()), got.rev, f.opened, now)
	}
}

// made reports whether an event is right for what the client has, where a difference has
// left out what was before.
func (f *follower) made(kind watch.EventType, got *state) bool {
	_, there := f.items[got.key()]
	return f.skipped > 0 && there == (kind != watch.Added)
}

// difference takes an event at a version that the client has already got: a DELETED of a difference
// stands for what is gone by now.
func (f *follower) difference(kind watch.EventType, got *state) bool {
	had := f.items[got.key()]
	if kind != watch.Deleted || had == nil || had.uid != got.uid {
		return f.complain("an event that came before", "%s %v after %d; the client has %v; etcd had %v", kind, got, f.at, had, stateAt(f.c.w.history.of(f.q.resource.name, got.key()), f.at))
	}
	f.skipped++
	f.c.w.did("events that a difference left out")
	delete(f.items, got.key())
	return true
}

// leftOut takes an event before which others should have come.
func (f *follower) leftOut(c *change, expected, kind watch.EventType, got *state) bool {
	if !f.skip(c, expected, fmt.Sprintf("%s %v", kind, got)) {
		return false
	}
	if !f.isAsStored(kind, got) {
		return f.complain("a difference that is none", "%s %v", kind, got)
	}
	f.take(kind, got)
	return true
}

// isAsStored reports whether an event shows what etcd has since its version. One of DELETED
// comes behind a difference that has left out something else.
func (f *follower) isAsStored(kind watch.EventType, got *state) bool {
	stored := stateAt(f.c.w.history.of(f.q.resource.name, got.key()), got.rev)
	if kind == watch.Deleted {
		return f.items[got.key()] != nil && (stored == nil || !f.q.selects(stored))
	}
	return stored != nil && stored.same(got)
}

// skip notes that an event was left out, if a difference may have done so.
func (f *follower) skip(c *change, expected watch.EventType, before string) bool {
	if !f.mayDiffer(c.at) {
		return f.complain("an event that is missing", "%s %s at %d, before %s; the client had %d", expected, c.key, c.rev, before, f.at)
	}
	f.skipped++
	f.c.w.did("events that a difference left out")
	return true
}

// mayDiffer reports whether the apiservers may have forgotten a watch's version since a
// time. They do while something is wrong; and for a kind that is defined anew they end all
// watches, and remember nothing of before.
func (f *follower) mayDiffer(since time.Time) bool {
	w, now := f.c.w, time.Now()
	return w.weatherOf(since, now) != fair || f.q.resource == widgets && w.log.wasRedefined(since, now)
}

// bookmark checks that the client has got every event up to a version.
func (f *follower) bookmark(rev int64) bool {
	w := f.c.w
	if err := w.history.await(rev); err != nil {
		return f.complain("a version that etcd never had", "bookmark: %v", err)
	}
	if rev < f.at {
		return f.complain("a bookmark that is older than an event before it", "%d after %d", rev, f.at)
	}
	if f.skipped == 0 && !f.skipUpTo(rev) {
		return false
	}
	if !f.matches(rev) {
		return false
	}
	f.at = rev
	if !f.f.table() {
		f.c.sight.raise(f.c.sight.views, viewKey(f.q, f.f), rev, f.opened, time.Now())
	}
	w.did("bookmarks")
	return true
}

// skipUpTo looks whether events are missing before a bookmark.
func (f *follower) skipUpTo(rev int64) bool {
	for _, c := range f.c.w.history.since(f.q.resource.name, f.at) {
		if c.rev > rev {
			break
		}
		if expected := f.expected(c); expected != "" && !f.skip(c, expected, fmt.Sprintf("the bookmark at %d", rev)) {
			return false
		}
	}
	return true
}

// matches compares what the client has with what there was at a version.
func (f *follower) matches(rev int64) bool {
	want := f.c.w.history.list(f.q, rev)
	for key, expected := range want {
		if got := f.items[key]; (got == nil || !got.same(expected)) && !f.isShown(key, expected, got) {
			return f.complain("a client that does not have what there is", "at %d it has %v; want %v", rev, got, expected)
		}
	}
	for key, got := range f.items {
		if want[key] == nil {
			return f.complain("a client that has what is not there", "at %d: %v", rev, got)
		}
	}
	if f.skipped > 0 {
		f.c.w.did("differences")
	}
	f.skipped = 0
	return true
}

// complain ends the following: what comes next is not known to be right.
func (f *follower) complain(kind, format string, args ...any) bool {
	f.c.w.report(kind, "%s, %s: %s", f.c.name, f.what, fmt.Sprintf(format, args...))
	f.lost = true
	return false
}
