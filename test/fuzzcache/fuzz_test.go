package fuzzcache

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/test/internal/metric"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// everything is the mode in which all that may happen comes, cuts most often.
var everything = mode{ //nolint:gochecknoglobals // never changed
	pause: 5 * time.Second,
	first: []fault{(*world).cut, (*world).cut, (*world).changeDefault, (*world).cut},
	faults: []weighted{
		{1, func(w *world, _ context.Context, r *rand.Rand) { w.restart(r, true) }},
		{1, func(w *world, _ context.Context, r *rand.Rand) { w.restart(r, false) }},
		{1, (*world).oneLink},
		{1, (*world).truncate},
		{1, (*world).changeDefault},
		{1, (*world).rotateOne},
		{1, (*world).turnAccess},
		{2, (*world).slow},
		{1, (*world).spoil},
		{7, (*world).cut},
	},
	least: map[string]float64{
		"cuts": 3, "changes of a default": 0.5, "lists, offline": 20, "gets, offline": 40, "lists, foul": 100, "gets, foul": 200,
		"watch events": 1000, "writes by clients": 50, "watch events in tables": 5,
		"statuses written": 10, "statuses reported while the cloud was away": 5, "reported statuses seen offline": 5,
	},
}

// TestWhatClientsSeeIsWhatEtcdHad plays for SECONDS, and then wants everybody to have what
// etcd has. A run that is shorter than settling does not wait until reported statuses are settled.
func TestWhatClientsSeeIsWhatEtcdHad(t *testing.T) {
	s := newSession(t, &everything)
	s.playFor(s.length, 1)
	s.playOn(2)
	s.end(s.length > settling)
}

// settling is how long the cloud has to be there before nothing that the node has reported is
// shown any more, if etcd does not have it: watches put it right when they go on, and the hub forgets it after 15 s and
// its jitter.
const settling = 40 * time.Second

// settle waits until all watches have what etcd has. Nobody writes any more. In a long run
// watch or list shows statuses of before in the end, while the cloud is away again.
func (w *world) settle(all []*follower, whole bool) {
	w.t.Helper()
	rev, err := w.revision(w.t.Context())
	w.must(err)
	w.must(w.history.await(rev))
	deadline := time.Now().Add(2 * patience)
	if whole {
		mend := w.cutOff(false)
		w.reportAll()
		mend()
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
		mend := w.cutOff(false)
		w.readAll()
		mend()
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
// still be shown until the cloud was there for long enough, and in a table until the pod changes: the hub relays a watch of
// one, whose client has listed without the cloud.
func (f *follower) has(want map[string]*state, settled bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	got, want := maps.Clone(f.items), maps.Clone(want)
	for key := range f.shown {
		if f.shown[key] && (!settled || f.f.table()) {
			delete(got, key)
			delete(want, key)
		}
	}
	return maps.EqualFunc(got, want, (*state).same)
}

// bounded looks whether the hub has grown.
func (w *world) bounded() {
	_, text := rawclient.Ask(w.t.Context(), http.MethodGet, w.hub.API+"/metrics")
	for name, most := range map[string]float64{"go_goroutines": 1500, "go_memstats_heap_inuse_bytes": 200 << 20, "process_open_fds": 600} {
		value, ok, err := metric.Sum(text, name)
		if err != nil || !ok || value > most {
			w.report("a hub that has grown", "%s is %v; at most %v is allowed; %v", name, value, most, err)
		}
	}
}

// lacking returns what has not happened often enough for the test to prove anything. In some seconds, what is rare may not
// happen at all.
func (w *world) lacking(length time.Duration) []string {
	const rare = 2
	var out []string
	minutes := length.Minutes()
	for what, least := range w.mode.least {
		if want := least * min(minutes, 10); (minutes >= 1 || want >= rare) && float64(w.done(what)) < want {
			out = append(out, fmt.Sprintf("%d %s in %v", w.done(what), what, length))
		}
	}
	return out
}

// didEnough fails the test if too little has happened for it to prove anything.
func (w *world) didEnough(length time.Duration) {
	w.t.Helper()
	const few = 10 // some are refused: the object may have been deleted since
	for _, what := range w.lacking(length) {
		w.report("too little was done", "%s", what)
	}
	for _, what := range []string{"lists", "gets"} {
		answered := w.done(what + " offline of what was read before: answered")
		refused := w.done(what + " offline of what was read before: refused")
		if answered+refused >= few && refused > answered {
			w.report("too little was answered offline", "%s of what was read before: %d answered, %d refused", what, answered, refused)
		}
	}
}
