package fuzzcache

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// aReportedPod returns a world in which a pod was changed at 9, and its node has reported that it runs over
// the copy of 5, and over that of 9.
func aReportedPod(t *testing.T) (w *world, copied, newer *state) {
	t.Helper()
	copied = &state{rev: 5, namespace: first, name: "p-0", uid: "u", node: "n", status: status{phase: "Pending", message: "report 1"}}
	newer = &state{rev: 9, namespace: first, name: "p-0", uid: "u", node: "n", status: status{phase: "Pending", message: "report 2"}}
	w = &world{t: t, history: &history{changes: map[string][]*change{}, objects: map[string][]*change{}, more: make(chan struct{})}}
	w.findings = findings{began: time.Now(), count: map[string]int{}, first: map[string][]string{}, total: map[string]int{}}
	w.history.add([]*change{
		{rev: 5, resource: pods.name, key: copied.key(), after: copied},
		{rev: 9, resource: pods.name, key: copied.key(), before: copied, after: newer},
	}, 12)
	for i, over := range []*state{copied, newer} {
		w.statuses.add(copied.key(), &report{n: 3 + i, uid: "u", rev: over.rev, status: running(over).status})
	}
	w.users = []*user{{w: w, name: "node", namespaces: []string{""}, sight: newSight()}, {w: w, name: "alice", sight: newSight()}}
	return w, copied, newer
}

// running returns a pod as the node has reported it.
func running(s *state) *state {
	shown := *s
	shown.status = status{phase: "Running", message: "report 3"}
	return &shown
}

// A list by status.phase has a pod for the phase that its node has reported offline, and
// etcd does not have. The hub's copy of that pod may be older than the list, so the list
// does not say how the pod was at the list's version: who gets that copy next sees nothing
// older than before. A list that has the pod as etcd had it does say so.
func TestAPodThatIsListedForItsReportedStatusIsSeenAsTheCopyItIs(t *testing.T) {
	for name, one := range map[string]struct {
		q        *query
		reported bool
		older    int // how often a GET of the copy is older than what was seen
	}{
		"the copy, for its reported status": {newQuery(pods, first, "", "status.phase=Running"), true, 0},
		"as etcd had it":                    {newQuery(pods, first, "", "spec.nodeName=n"), false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w, copied, newer := aReportedPod(t)
			shown, items := running(copied), []*state{newer}
			if one.reported {
				items = []*state{shown}
			}
			c, a := &client{user: w.users[0], name: "node/reader"}, &answer{weather: offline, began: time.Now(), ended: time.Now()}

			if !c.judgeList(name, one.q, forms[0], &listing{items: items, rev: 12}, a) {
				t.Fatalf("the list is not taken: %v", w.findings.first)
			}
			c.saw(one.q, forms[0], items, 12, true, a.began, a.ended)
			c.judgeState("GET", pods, shown.key(), shown, c.sight.object(pods, first, shown.name), a)
			if n := w.findings.count["an object that is older than what was seen"]; n != one.older || len(w.findings.count) != one.older {
				t.Errorf("want %d times older, found %v", one.older, w.findings.first)
			}
		})
	}
}

// A watch by status.phase shows the node its last report, over the copy that a GET reads: when it was made
// over a newer copy than the one before, it is that. The version of the watch may be older or newer.
func TestAWatchShowsTheReportOverANewerCopy(t *testing.T) {
	for name, one := range map[string]struct {
		user     int
		at       int64
		kind     watch.EventType
		selector string
		want     string // the finding
	}{
		"before the copy, to a client of another process of the hub": {0, 7, watch.Added, "status.phase=Running", ""},
		"after it":                      {0, 12, watch.Modified, "status.phase=Running", ""},
		"to a user who is not shown it": {1, 12, watch.Modified, "status.phase=Running", "an event that came before"},
		"selected by something else":    {0, 12, watch.Modified, "spec.nodeName=n", "an event that came before"},
	} {
		t.Run(name, func(t *testing.T) {
			w, copied, newer := aReportedPod(t)
			f := newFollower(&client{user: w.users[one.user]}, newQuery(pods, first, "", one.selector), forms[0])
			f.begin(map[string]*state{copied.key(): running(copied)}, one.at)
			if took := f.event(one.kind, running(newer)); took != (one.want == "") || !took && w.findings.count[one.want] == 0 {
				t.Errorf("taken: %v; found %v, want %q", took, w.findings.first, one.want)
			}
		})
	}
}
