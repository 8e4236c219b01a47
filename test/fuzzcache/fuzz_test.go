package fuzzcache

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/test/internal/metric"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// TestWhatClientsSeeIsWhatEtcdHad plays for SECONDS, and then wants everybody to have what
// etcd has.
func TestWhatClientsSeeIsWhatEtcdHad(t *testing.T) {
	length := time.Duration(number(t, "SECONDS", 60)) * time.Second
	seed := number(t, "SEED", rand.Uint64N(1_000_000))
	t.Logf("SEED=%d", seed)
	w := newWorld(t, seed)
	defer w.summarize()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	writing, stopWriting := context.WithCancel(ctx)
	var readers, writers sync.WaitGroup
	for i := range uint64(2) {
		r := w.random(100 + i)
		writers.Go(func() { w.writeDirectly(writing, r) })
	}
	kubelet, r := w.users[0].newClient("kubelet", false), w.random(200)
	writers.Go(func() { kubelet.reportStatuses(writing, r) })
	followers := w.startClients(ctx, writing, &readers, &writers)

	w.playFor(ctx, min(length, playful), 1)
	for more := uint64(2); more < 6 && len(w.lacking(length)) > 0; more++ { // which faults come, and when, is random
		w.note("playing on: %v", w.lacking(length))
		w.playFor(ctx, min(length, playful)/4, more)
	}
	w.calm(ctx)
	for left, more := length-playful, uint64(6); left > 0; left, more = left-playful, more+1 {
		w.playFor(ctx, min(left, playful), more)
		w.calm(ctx)
	}
	w.note("the end: all is whole")
	stopWriting()
	writers.Wait()
	w.settle(followers, length > settling)
	cancel()
	readers.Wait()
	w.didEnough(length)
}

// playful is how long faults are played until there is a calm.
const playful = 10 * time.Minute

// calm waits until the hub has answered the node by itself though the cloud is there. For that a
// watch needs a bookmark since it was opened or resumed, and an apiserver sends one a minute. The node
// itself writes nothing: after it has deleted a collection, no watch answers for two minutes.
func (w *world) calm(ctx context.Context) {
	w.note("a calm")
	w.isCalm.Store(true)
	defer w.isCalm.Store(false)
	before := w.done(answeredCalm)
	for range 180 {
		if pause(ctx, time.Second); w.done(answeredCalm) > before+20 {
			return
		}
	}
}

// playFor plays faults for a while. Each call begins with cuts.
func (w *world) playFor(ctx context.Context, length time.Duration, stream uint64) {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	w.play(ctx, w.random(stream))
}

func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q: want a number", name, value)
	}
	return n
}

// startClients starts the clients of all users. Those that write end with writing.
func (w *world) startClients(ctx, writing context.Context, readers, writers *sync.WaitGroup) []*follower {
	var all []*follower
	for i, u := range w.users {
		for j := range 3 {
			r := w.random(uint64(1000 + 10*i + j))
			c := u.newClient("reader-"+strconv.Itoa(j), u.name != "node" && j > 0)
			readers.Go(func() { c.readOn(ctx, r) })
		}
		r := w.random(uint64(2000 + i))
		c := u.newClient("writer", u.name != "node")
		writers.Go(func() {
			for writing.Err() == nil {
				if !w.isCalm.Load() || u.name != "node" {
					c.write(writing, r)
				}
				pause(writing, time.Duration(r.IntN(400))*time.Millisecond)
			}
		})
		if u.revocable {
			continue
		}
		for j := range 6 {
			r := w.random(uint64(3000 + 10*i + j))
			c := u.newClient("watcher-"+strconv.Itoa(j), u.name != "node" && j%2 == 0)
			fl := newFollower(c, u.queries[r.IntN(len(u.queries))], forms[r.IntN(len(forms))])
			all = append(all, fl)
			if j < 2 && fl.q.resource != widgets && !fl.f.metadata() && !fl.f.table() {
				readers.Go(func() {
					if err := fl.reflect(ctx); err != nil {
						w.report("a reflector that cannot be made", "%v", err)
					}
				})
				continue
			}
			readers.Go(func() { fl.watch(ctx, r, j%2 == 0 && !fl.f.table()) })
		}
	}
	return all
}

// readOn lists, and gets, until ctx ends.
func (c *client) readOn(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		if r.IntN(3) == 0 {
			c.list(ctx, r)
		} else {
			c.get(ctx, r)
		}
		if r.IntN(2) == 0 {
			c.getAny(ctx, r)
		}
		pause(ctx, time.Duration(20+r.IntN(200))*time.Millisecond)
	}
}

// settling is how long the cloud has to be there before nothing that the node has reported is
// shown any more, if etcd does not have it: the hub forgets it after a minute, and a watch that
// was opened just before puts it right after another.
const settling = 150 * time.Second

// settle waits until all watches have what etcd has. Nobody writes any more. In a long run
// watch or list shows statuses of before in the end, while the cloud is away again, which takes
// a minute.
func (w *world) settle(all []*follower, whole bool) {
	w.t.Helper()
	rev, err := w.revision(w.t.Context())
	w.must(err)
	w.must(w.history.await(rev))
	deadline := time.Now().Add(2 * patience)
	if whole {
		w.cutWhile(w.reportAll)
		deadline = time.Now().Add(settling)
	}
	for _, x := range all {
		arrived := func() bool { return x.has(w.history.list(x.q, w.history.now()), whole) } // controllers write on
		if !poll.Within(time.Until(deadline), arrived) {
			w.report("a watch that does not get what there is", "%s, %s: %s", x.c.name, x.what, x.differences(w.history.list(x.q, w.history.now())))
		}
	}
	w.readAll()
	if whole {
		pause(w.t.Context(), time.Until(deadline))
		w.statuses.forget()
		w.cutWhile(w.readAll)
	}
	w.bounded()
}

// readAll has all users list all that they read, in all forms.
func (w *world) readAll() {
	for _, u := range w.users {
		c := u.newClient("last", u.name != "node")
		for _, q := range u.queries {
			for _, f := range forms {
				c.listAs(w.t.Context(), w.random(9), q, f)
			}
		}
	}
}

// differences describes how the objects that the client has differ from the wanted ones.
func (f *follower) differences(want map[string]*state) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := fmt.Sprintf("at %d, asked at %v; it has to list again: %t", f.at, f.opened.Format(time.TimeOnly), f.lost)
	for key, expected := range want {
		if got := f.items[key]; got == nil || !got.same(expected) {
			text += fmt.Sprintf("\n\t\tgot  %v, shown for its status: %t\n\t\twant %v", got, f.shown[key], expected)
		}
	}
	for key, got := range f.items {
		if want[key] == nil {
			text += fmt.Sprintf("\n\t\tgot  %v, shown for its status: %t\n\t\twant nothing", got, f.shown[key])
		}
	}
	return text
}

// has reports whether the client has what there is. Statuses that the node has reported may
// still be shown until the cloud was there for long enough, and where they were what selects
// an object: a hub does not know which objects its client's list had for that, or had not.
func (f *follower) has(want map[string]*state, settled bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	got, want := maps.Clone(f.items), maps.Clone(want)
	for key := range f.shown {
		if f.shown[key] && (!settled || f.q.byStatus()) {
			delete(got, key)
			delete(want, key)
		}
	}
	return maps.EqualFunc(got, want, (*state).same)
}

// bounded looks whether the hub has grown.
func (w *world) bounded() {
	a := w.users[0].newClient("metrics", false)
	a.base = w.hub.API
	text := string(a.do(w.t.Context(), "GET", "/metrics", "", "", nil).body)
	for name, most := range map[string]float64{"go_goroutines": 1500, "go_memstats_heap_inuse_bytes": 200 << 20, "process_open_fds": 600} {
		value, ok, err := metric.Sum(text, name)
		if err != nil || !ok || value > most {
			w.report("a hub that has grown", "%s is %v; at most %v is allowed; %v", name, value, most, err)
		}
	}
}

// lacking returns what has not happened often enough for the test to prove anything.
func (w *world) lacking(length time.Duration) []string {
	var out []string
	minutes := length.Minutes()
	for what, least := range map[string]float64{
		"cuts": 3, "changes of a default": 0.5, "lists, offline": 20, "gets, offline": 40, "lists, foul": 100, "gets, foul": 200,
		"watch events": 1000, "writes by clients": 50, "watch events in tables": 5,
		"statuses written": 10, "statuses reported while the cloud was away": 5, "reported statuses seen offline": 5,
	} {
		if float64(w.done(what)) < least*min(minutes, 10) {
			out = append(out, fmt.Sprintf("%d %s in %v", w.done(what), what, length))
		}
	}
	return out
}

// didEnough fails the test if too little has happened for it to prove anything.
func (w *world) didEnough(length time.Duration) {
	w.t.Helper()
	for _, what := range w.lacking(length) {
		w.report("too little was done", "%s", what)
	}
	if w.done(answeredCalm) == 0 {
		w.report("too little was done", "no %s", answeredCalm)
	}
	for _, what := range []string{"lists", "gets"} {
		answered := w.done(what + " offline of what was read before: answered")
		refused := w.done(what + " offline of what was read before: refused")
		if refused > answered {
			w.report("too little was answered offline", "%s of what was read before: %d answered, %d refused", what, answered, refused)
		}
	}
}
