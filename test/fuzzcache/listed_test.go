package fuzzcache

import (
	"testing"
	"time"
)

// A list by status.phase has a pod for the phase that its node has reported offline, and
// etcd does not have. The hub's copy of that pod may be older than the list, so the list
// does not say how the pod was at the list's version: who gets that copy next sees nothing
// older than before. A list that has the pod as etcd had it does say so.
func TestAPodThatIsListedForItsReportedStatusIsSeenAsTheCopyItIs(t *testing.T) {
	copied := &state{rev: 5, namespace: first, name: "p-0", uid: "u", node: "n", status: status{phase: "Pending", message: "report 1"}}
	newer := &state{rev: 9, namespace: first, name: "p-0", uid: "u", node: "n", status: status{phase: "Pending", message: "report 2"}}
	shown := *copied // by the hub, over its copy
	shown.status = status{phase: "Running", message: "report 3"}

	running, ofNode := newQuery(pods, first, "", "status.phase=Running"), newQuery(pods, first, "", "spec.nodeName=n")
	for name, one := range map[string]struct {
		q     *query
		items []*state
		older int // how often a GET of the copy is older than what was seen
	}{
		"the copy, for its reported status": {running, []*state{&shown}, 0},
		"as etcd had it":                    {ofNode, []*state{newer}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{t: t, history: &history{changes: map[string][]*change{}, objects: map[string][]*change{}, more: make(chan struct{})}}
			w.findings = findings{began: time.Now(), count: map[string]int{}, first: map[string][]string{}, total: map[string]int{}}
			w.history.add([]*change{
				{rev: 5, resource: pods.name, key: copied.key(), after: copied},
				{rev: 9, resource: pods.name, key: copied.key(), before: copied, after: newer},
			}, 12)
			w.statuses.add(copied.key(), &report{n: 3, uid: "u", rev: 5, status: shown.status})
			w.users = []*user{{w: w, name: "node", namespaces: []string{""}, sight: newSight()}}
			c, a := &client{user: w.users[0], name: "node/reader"}, &answer{weather: offline, began: time.Now(), ended: time.Now()}

			if !c.judgeList(name, one.q, forms[0], &listing{items: one.items, rev: 12}, a) {
				t.Fatalf("the list is not taken: %v", w.findings.first)
			}
			c.saw(one.q, forms[0], one.items, 12, true, a.began, a.ended)
			c.judgeState("GET", pods, shown.key(), &shown, c.sight.object(pods, first, shown.name), a)
			if n := w.findings.count["an object that is older than what was seen"]; n != one.older || len(w.findings.count) != one.older {
				t.Errorf("want %d times older, found %v", one.older, w.findings.first)
			}
		})
	}
}
