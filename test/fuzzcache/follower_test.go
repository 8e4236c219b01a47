package fuzzcache

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// TestAFollowerKnowsWhatADifferenceLeavesOut has a client watch what is labelled tier=x. It
// has "old" at 50, from 100 on "brief" comes at 110 and leaves at 120, and what the client
// gets shows nothing of it.
func TestAFollowerKnowsWhatADifferenceLeavesOut(t *testing.T) {
	tests := map[string]struct {
		resource  *resource
		redefined bool
		stays     bool // "brief" does not leave
		get       func(f *follower)
		want      string // the finding
	}{
		"a bookmark, after the kind was redefined": {widgets, true, false, bookmarkAt(130), ""},
		"a bookmark":                               {widgets, false, false, bookmarkAt(130), "an event that is missing"},
		"a bookmark, after another kind was":       {configMaps, true, false, bookmarkAt(130), "an event that is missing"},
		"a bookmark without what is there":         {widgets, true, true, bookmarkAt(130), "a client that does not have what there is"},
		"a deletion, after the kind was redefined": {widgets, true, false, deletionAt(140, "old"), ""},
		"a deletion":                               {widgets, false, false, deletionAt(140, "old"), "an event that is missing"},
		"a deletion of what the client had not":    {widgets, true, true, deletionAt(150, "brief"), "a difference that is none"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFollowerFrom100(t, test.resource, test.stays)
			if test.redefined {
				f.c.w.log.during(&f.c.w.log.defined, "another default")()
			}
			test.get(f)
			for kind, details := range f.c.w.findings.first {
				if kind != test.want {
					t.Errorf("found %s: %s", kind, details)
				}
			}
			if test.want != "" && f.c.w.findings.count[test.want] == 0 {
				t.Errorf("nothing was found, want %q", test.want)
			}
		})
	}
}

func bookmarkAt(rev int64) func(*follower) { return func(f *follower) { f.bookmark(rev) } }

func deletionAt(rev int64, name string) func(*follower) {
	return func(f *follower) { f.event(watch.Deleted, labelled(rev, name, "x")) }
}

func labelled(rev int64, name, value string) *state {
	return &state{rev: rev, namespace: first, name: name, uid: name, labels: map[string]string{tier: value}}
}

func newFollowerFrom100(t *testing.T, r *resource, stays bool) *follower {
	t.Helper()
	now := time.Now()
	old, brief := labelled(50, "old", "x"), labelled(110, "brief", "x")
	all := []*change{
		{rev: 50, after: old},
		{rev: 110, after: brief},
		{rev: 120, before: brief, after: labelled(120, "brief", "y")},
		{rev: 140, before: old},
	}
	if stays {
		all = append(all[:2], &change{rev: 150, before: brief})
	}
	h := &history{changes: map[string][]*change{}, objects: map[string][]*change{}, more: make(chan struct{})}
	for _, c := range all {
		c.resource, c.at, c.key = r.name, now, first+"/brief"
		if c.after == old || c.before == old {
			c.key = first + "/old"
		}
	}
	h.add(all, 200)
	w := &world{t: t, history: h, findings: findings{count: map[string]int{}, first: map[string][]string{}, total: map[string]int{}}}
	f := newFollower(&client{user: &user{w: w, sight: newSight()}}, newQuery(r, first, tier+"=x", ""), forms[0])
	f.begin(map[string]*state{old.key(): old}, 100)
	return f
}
