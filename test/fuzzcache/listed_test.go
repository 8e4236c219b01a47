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

// What a list by status.phase has follows from etcd, not from what the node has reported.
func TestAReportedStatusMovesNoPodOfAList(t *testing.T) {
	for name, one := range map[string]struct {
		phase string
		shown []*state
		want  string // the finding
	}{
		"a pod with its reported status":         {"Pending", []*state{running(&state{rev: 9, namespace: first, name: "p-0", uid: "u", node: "n"})}, ""},
		"a pod that has left for its status":     {"Pending", nil, "an object that is missing in a list"},
		"a pod that is listed for its status":    {"Running", []*state{running(&state{rev: 9, namespace: first, name: "p-0", uid: "u", node: "n"})}, "an object that should not be in a list"},
		"no pod that has the status in no cloud": {"Running", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, newer := aReportedPod(t)
			for _, s := range one.shown {
				s.rev, s.status = newer.rev, running(newer).status
			}
			c, a := &client{user: w.users[0], name: "node/reader"}, &answer{weather: offline, began: time.Now(), ended: time.Now()}
			c.judgeList(name, newQuery(pods, first, "", "status.phase="+one.phase), forms[0], &listing{items: one.shown, rev: 12}, a)
			if len(w.findings.count) != len(one.want[:min(len(one.want), 1)]) || one.want != "" && w.findings.count[one.want] != 1 {
				t.Errorf("found %v, want %q", w.findings.first, one.want)
			}
		})
	}
}

// A watch shows a reported status as MODIFIED of what the client has.
func TestAReportedStatusMovesNoPodOfAWatch(t *testing.T) {
	for name, one := range map[string]struct {
		kind watch.EventType
		had  bool
		want bool
	}{
		"a pod that the client has":      {watch.Modified, true, true},
		"a pod that it does not have":    {watch.Modified, false, false},
		"a pod that comes for a status":  {watch.Added, false, false},
		"a pod that leaves for a status": {watch.Deleted, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, newer := aReportedPod(t)
			f := newFollower(&client{user: w.users[0]}, newQuery(pods, first, "", "status.phase=Pending"), forms[0])
			items := map[string]*state{}
			if one.had {
				items[newer.key()] = newer
			}
			f.begin(items, 12)
			// A DELETED may be of a difference: the next bookmark finds the client without the pod.
			if took := f.event(one.kind, running(newer)) && f.bookmark(12); took != one.want {
				t.Errorf("taken: %v; found %v", took, w.findings.first)
			}
		})
	}
}
