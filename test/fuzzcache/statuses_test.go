package fuzzcache

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// report is a status that the node has written, or has tried to write, and that etcd does
// not have: the hub shows it while the cloud is away.
type report struct {
	n       int // they are counted
	uid     string
	rev     int64  // of the object that the hub has laid it over; 0 is unknown
	status  status // whole is unknown where rev is
	at      time.Time
	certain bool // it was answered with success, and nothing has happened since that may have lost it
}

// statuses are the reports about each pod, in order.
type statuses struct {
	mu     sync.Mutex
	n      int
	of     map[string][]*report // by key of the pod
	losses []loss
}

// loss is when what had been reported from a time on may have been lost.
type loss struct{ from, at time.Time }

func (all *statuses) next() int {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.n++
	return all.n
}

func (all *statuses) add(key string, r *report) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.of == nil {
		all.of = map[string][]*report{}
	}
	all.of[key] = append(all.of[key], r)
}

func (all *statuses) remove(key string, r *report) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.of[key] = slices.DeleteFunc(all.of[key], func(other *report) bool { return other == r })
}

// lost has what was reported after a time, and up to now, be uncertain.
func (all *statuses) lost(from time.Time) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.losses = append(all.losses, loss{from, time.Now()})
	for _, reports := range all.of {
		for _, r := range reports {
			r.certain = r.certain && r.at.Before(from)
		}
	}
}

// forget has none ever shown again.
func (all *statuses) forget() {
	all.mu.Lock()
	defer all.mu.Unlock()
	clear(all.of)
}

// over returns the reports that may be shown over a pod as it was in etcd. The node sees its
// own status over an older copy, too.
func (all *statuses) over(stored *state, asNode bool) (over []report) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, r := range all.of[stored.key()] {
		if r.uid == stored.uid && (r.rev == 0 || r.rev == stored.rev || asNode && r.rev > stored.rev) {
			over = append(over, *r)
		}
	}
	return over
}

func (r report) shownIn(got *state) bool {
	return r.status.message == got.status.message && (r.rev == 0 || r.status == got.status)
}

// due returns the report that has to be seen in a pod, or else a later one, by who asked at
// a time; no if there is none.
func (all *statuses) due(stored *state, asked time.Time) (due report, ok bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, r := range all.of[stored.key()] {
		// There is one for each pod: if it lies over another version, none is over this one.
		over := r.uid == stored.uid && r.rev == stored.rev
		switch {
		case !r.certain:
			ok = false // it may have taken the place of those before
		case r.at.Before(asked):
			due, ok = *r, over
		case !over:
			ok = false // it was answered later, and may have taken their place before
		}
	}
	return due, ok
}

// describe returns the reports about a pod, with when they were answered.
func (all *statuses) describe(key string, asked time.Time) string {
	all.mu.Lock()
	defer all.mu.Unlock()
	var text []string
	for _, r := range all.of[key] {
		text = append(text, fmt.Sprintf("%d over %d (certain: %t) %s", r.n, r.rev, r.certain, r.at.Sub(asked)))
	}
	return strings.Join(text, ", ")
}

// explains reports whether a user may be shown got of a pod that was stored like that.
func (c *client) explains(stored, got *state, under weather) bool {
	if stored == nil {
		return false
	}
	if stored.same(got) {
		return true
	}
	return under != fair && stored.sameButStatus(got) && c.shownReport(stored, got) != 0
}

// shownReport returns the number of the report that got shows over what was stored; 0 if
// it shows none.
func (c *client) shownReport(stored, got *state) int {
	if got.metadata {
		return 0
	}
	for _, r := range c.w.statuses.over(stored, c.isNode()) {
		if r.shownIn(got) {
			return r.n
		}
	}
	return 0
}

// judgeReport complains about a pod without the status that the node has reported before
// it was asked for. stored is what etcd had at the version that is shown.
func (c *client) judgeReport(what string, stored, got *state, a *answer) bool {
	if a.weather != offline || got.metadata {
		return true
	}
	due, ok := c.w.statuses.due(stored, a.began)
	if !ok {
		return true
	}
	if c.shownReport(stored, got) < due.n {
		c.w.report("a pod without the status that the node has reported", "%s, %s: %v; want report %d or a later one, of %s", c.name, what, got, due.n, c.w.statuses.describe(stored.key(), a.began))
		return false
	}
	c.w.did("reported statuses seen offline")
	return true
}

func (c *client) isNode() bool { return c.user == c.w.users[0] }

// reportStatuses is what a kubelet does: it reads a pod of its node, and writes its status.
func (c *client) reportStatuses(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		namespace, name := []string{first, second}[r.IntN(2)], nameOf(pods, r.IntN(objects))
		if c.reportStatus(ctx, r, namespace, name) {
			c.w.observe(ctx, r, namespace, name)
		}
		pause(ctx, time.Duration(r.IntN(100))*time.Millisecond)
	}
}

// reportAll writes the status of all pods of the node once.
func (w *world) reportAll() {
	kubelet, r := w.users[0].newClient("kubelet", false), w.random(201)
	for _, namespace := range []string{first, second} {
		for i := range objects {
			kubelet.reportStatus(w.t.Context(), r, namespace, nameOf(pods, i))
		}
	}
}

// observe has somebody read a pod of which the hub has kept a status.
func (w *world) observe(ctx context.Context, r *rand.Rand, namespace, name string) {
	u := w.users[r.IntN(len(w.users))]
	if !u.reads(namespace) {
		return
	}
	c := u.newClient("observer", u.name != "node")
	defer c.http.CloseIdleConnections()
	c.getOne(ctx, pods, namespace, name, forms[r.IntN(len(forms))])
	for _, q := range u.queries {
		if q.resource == pods && r.IntN(2) == 0 {
			c.listAs(ctx, r, q, forms[r.IntN(len(forms))])
		}
	}
}

// reportStatus returns whether the hub has kept the status, because the cloud was away.
func (c *client) reportStatus(ctx context.Context, r *rand.Rand, namespace, name string) (kept bool) {
	path := pods.path(namespace) + "/" + name
	a := c.do(ctx, http.MethodGet, path, asJSON, "", nil)
	var pod corev1.Pod
	if a.err != nil || a.code != http.StatusOK || json.Unmarshal(a.body, &pod) != nil || pod.Spec.NodeName != c.w.hub.Name {
		return false // others complain about what is wrong with it
	}
	n := c.w.statuses.next()
	pod.Status.Phase = []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodRunning, corev1.PodFailed}[r.IntN(4)]
	pod.Status.Message, pod.Status.Reason = fmt.Sprintf("report %d", n), "Fuzz"
	mine := &report{n: n, uid: string(pod.UID), status: status{phase: string(pod.Status.Phase), message: pod.Status.Message}, at: time.Now()}
	// It may be shown before it is answered, or be answered by nobody.
	key := namespace + "/" + name
	c.w.statuses.add(key, mine)

	method, contentType := http.MethodPatch, []string{"application/strategic-merge-patch+json", "application/merge-patch+json"}[r.IntN(2)]
	var body any = map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"phase": pod.Status.Phase, "message": pod.Status.Message, "reason": pod.Status.Reason},
	}
	if r.IntN(4) == 0 {
		method, contentType, body = http.MethodPut, asJSON, &pod
	}
	a = c.send(ctx, method, path+"/status", contentType, body)
	return a.err == nil && a.code == http.StatusOK && c.reported(path, key, mine, a)
}

// reported takes the answer to a report: etcd has it, or the hub has kept it.
func (c *client) reported(path, key string, mine *report, a *answer) (kept bool) {
	got, err := decodeState(a.body, 0)
	if err != nil {
		c.w.report("the answer to a status that cannot be read", "%s: %s: %v: %v", c.name, path, err, a)
		return false
	}
	if got.key() != key || got.uid != mine.uid || got.status.message != mine.status.message || got.status.phase != mine.status.phase {
		c.w.report("the answer to another status than the one written", "%s: %s: %v, want %v", c.name, path, got, mine.status)
		return false
	}
	if err := c.w.history.await(got.rev); err != nil {
		c.w.report("a version that etcd never had", "%s: the answer to a status, %s: %v", c.name, path, err)
		return false
	}
	stored := stateAt(c.w.history.of(pods.name, key), got.rev)
	switch {
	case stored != nil && stored.same(got):
		c.w.did("statuses written")
		c.w.statuses.remove(key, mine)
		c.sight.raise(c.sight.objects, objectKey(pods.name, key), got.rev, a.began, a.ended)
		return false
	case a.weather != offline && stored.endedAs(got):
		// The hub may have answered, which has not seen yet that the pod is removed. With other
		// managed fields it was an apiserver, and nobody may be shown the pod any more.
		c.w.did("statuses of a pod that was being removed")
		if stored.about != got.about {
			c.gone(pods, key, mine.uid, a.began, a.ended)
		}
		return false
	case a.weather == fair:
		c.w.report("a status that was not written though nothing was wrong", "%s: %s: %v; etcd has %v", c.name, path, got, stored)
	case stored == nil || !stored.sameButStatus(got):
		c.w.report("a status over an object as it never was", "%s: %s, %v:\n\t\tgot  %v\n\t\twant %v\n\t\t%s", c.name, path, a.weather, got, stored, c.w.metadataDifference(pods, got, a.body))
		return false
	}
	c.w.did("statuses reported while the cloud was away")
	c.w.statuses.settle(mine, got, a.ended)
	return true
}

// endedAs reports whether got is what an apiserver answers a write to a pod with that is about
// to be removed: it carries out the deletion, and shows the pod as the write would have made
// it, at the version that it had.
func (s *state) endedAs(got *state) bool {
	if s == nil || !s.ended || !got.ended {
		return false
	}
	written := *s
	written.about = got.about // the managed fields name the write
	return written.sameButStatus(got)
}

// settle notes what became of a report that was answered at a time. The hub may have been
// killed since.
func (all *statuses) settle(r *report, got *state, at time.Time) {
	all.mu.Lock()
	defer all.mu.Unlock()
	r.rev, r.status, r.at, r.certain = got.rev, got.status, at, true
	for _, l := range all.losses {
		r.certain = r.certain && (at.Before(l.from) || at.After(l.at))
	}
}
