package cache

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/view"
)

// modelWorld is a hub in front of a modelServer.
type modelWorld struct {
	*trapRig
	*modelServer
	modelSeen
	q     modelQuery // of this step
	saved func()     // goes back

	damaged bool
}

func newModelWorld(t *testing.T, seed uint64) *modelWorld {
	t.Helper()
	w := &modelWorld{
		trapRig: newTrapRig(t), modelServer: &modelServer{
			Rand: rand.New(rand.NewPCG(seed, 12)), apis: []string{"/api/v1"}, version: 100, //nolint:gosec // a test
			states: make([]map[string]modelObject, 101), changed: make([]string, 101),
		}, modelSeen: newModelSeen(),
	}
	w.states[100] = map[string]modelObject{}
	if seed%2 > 0 {
		w.apis = []string{"/apis/example.com/v1", "/apis/example.com/v1beta1"}
	}
	for _, verb := range []string{"get", "list", "delete", "check"} {
		w.on(verb, w.answer)
	}
	w.on("watch", w.watch)
	return w
}

func (w *modelWorld) ask(method, url string) string {
	ctx, url := inForm(w.Context(), url)
	defer synctest.Wait()
	return ask(ctx, w.T, w.Cache, method, url)
}

// got records an object that was read or written by itself.
func (w *modelWorld) got(name string) {
	if o, ok := w.now()[name]; ok {
		w.show(name, o, w.version)
		delete(w.doubt, name)
		delete(w.refused, name)
		if w.must[name] == nil {
			w.must[name] = map[string]string{}
		}
		w.must[name][w.q.get(name)] = fmt.Sprintf("%s=%d/%s", name, o.version, o.label)
		return
	}
	at := w.highest
	w.lack(name, at)
	w.absent[name] = max(at, w.alive[name], 1)
	w.gone[w.uid[name]] = true
	delete(w.must, name)
}

func (w *modelWorld) list(version int) {
	state := w.states[version]
	if w.listed[w.q] = max(w.listed[w.q], version); !w.q.red {
		w.reach(state, version)
		return
	}
	w.members(version)
}

// members records what a list with a selector shows at a version.
func (w *modelWorld) members(version int) {
	w.highest = max(w.highest, version)
	for name, o := range w.states[version] {
		if w.q.selects(o) {
			w.show(name, o, version)
		}
	}
}

// follow has the client of a list watch it from there, for a while.
func (w *modelWorld) follow() {
	from := w.listed[w.q]
	if from == 0 {
		return
	}
	w.until = from + w.IntN(w.version-from+1)
	ctx, url := inForm(w.Context(), w.q.list(fmt.Sprintf("watch=true&allowWatchBookmarks=true&resourceVersion=%d", from)))
	one := startWatch(ctx, w.T, w.Cache, url)
	synctest.Wait()
	for _, e := range one.heardEvents(w.T) {
		kind, what, _ := strings.Cut(e, ":")
		name, version, _ := strings.Cut(what, "=")
		version, _, _ = strings.Cut(version, "/")
		v, _ := strconv.Atoi(version)
		if kind == "ERROR" {
			w.listed[w.q] = 0
			break
		}
		w.listed[w.q] = max(w.listed[w.q], v)
		if !w.q.red {
			w.reach(w.states[v], v)
			continue
		}
		if kind == "DELETED" && v > w.newest[name] {
			w.newest[name] = v
			w.doubts(name)
			w.doubt[name] = v
			if w.gone[w.states[v-1][name].uid] { // it has not left the selection
				w.absent[name] = v
			}
		}
		w.members(v)
	}
	one.stop()
	<-one.done
	synctest.Wait()
}

// damage loses commits, but for the last one, of which nobody would know.
func (w *modelWorld) damage() {
	time.Sleep(10 * time.Second)
	before := sizeOf(w.T, w.dir)
	w.refuses = true
	w.ask(http.MethodGet, w.q.get(fmt.Sprint("n", before)))
	w.refuses = false
	time.Sleep(10 * time.Second)
	w.halt()
	file := filepath.Join(w.dir, "cache.log")
	log, err := os.ReadFile(file)
	if err != nil {
		w.Fatal(err)
	}
	if before >= int64(len(log)) { // nothing came after the last commit, or the file was rewritten
		w.Cache, w.halt = runIn(w.T, w.dir, w.upstream)
		w.restarted()
		return
	}
	from := w.Int64N(before)
	spoilt := log[from:min(from+w.Int64N(1000), before)]
	copy(spoilt, bytes.Repeat([]byte("~"), len(spoilt)))
	if err := os.WriteFile(file, log, 0o600); err != nil {
		w.Fatal(err)
	}
	w.Cache, w.halt = runIn(w.T, w.dir, w.upstream)
	w.damaged = true
	if len(w.logState.Tables()) == 0 {
		w.modelSeen = newModelSeen() // nothing is left of the file
		return
	}
	clear(w.must)
	clear(w.kept)
	w.restarted()
	w.highest = 0 // it may be among what is lost
	for _, name := range modelNames {
		w.evicted[name] = true
		if w.doubt[name] > 0 {
			w.doubt[name] = 1 // until it is read again
		}
	}
}

// save has what is on disk come back with the next kill.
func (w *modelWorld) save() {
	time.Sleep(10 * time.Second)
	dir, seen := filepath.Join(w.TempDir(), "saved"), w.clone()
	if err := os.CopyFS(dir, os.DirFS(w.dir)); err != nil {
		w.Fatal(err)
	}
	w.saved = func() {
		w.halt()
		if err := errors.Join(os.RemoveAll(w.dir), os.CopyFS(w.dir, os.DirFS(dir))); err != nil {
			w.Fatal(err)
		}
		w.Cache, w.halt = runIn(w.T, w.dir, w.upstream)
		w.modelSeen = seen.clone()
		w.restarted()
	}
}

type modelStep struct {
	name string
	do   func(w *modelWorld, name string)
}

var modelSteps = []modelStep{
	{"set", func(w *modelWorld, name string) { w.set(name) }},
	{"set", func(w *modelWorld, name string) { w.set(name) }},
	{"remove", func(w *modelWorld, name string) { w.remove(name) }},
	{"get", func(w *modelWorld, name string) {
		w.ask(http.MethodGet, w.q.get(name))
		w.got(name)
	}},
	{"get at 0", func(w *modelWorld, name string) {
		w.lags = 100 + w.IntN(w.version-99)
		w.ask(http.MethodGet, w.q.get(name)+"?resourceVersion=0")
		if o, ok := w.states[w.lags][name]; ok {
			w.show(name, o, o.version)
			delete(w.refused, name)
			return
		}
		delete(w.must, name)
		if w.newest[name] > 0 && !w.evicted[name] { // nothing is in doubt of which nothing is known
			w.doubts(name)
		}
	}},
	{"get refused", func(w *modelWorld, name string) {
		w.refuses = true
		w.ask(http.MethodGet, w.q.get(name))
		w.refused[name] = true
	}},
	{"patch", func(w *modelWorld, name string) {
		if _, ok := w.now()[name]; ok {
			w.ask([]string{http.MethodPatch, http.MethodPut}[w.IntN(2)], w.q.get(name))
			w.got(name)
		}
	}},
	{"delete", func(w *modelWorld, name string) {
		before, ok := w.now()[name]
		w.ask(http.MethodDelete, w.q.get(name))
		w.gone[before.uid] = ok
		w.got(name)
	}},
	{"delete accepted", func(w *modelWorld, name string) {
		if _, ok := w.now()[name]; ok {
			w.accepted = true
			w.ask(http.MethodDelete, w.q.get(name))
			w.doubts(name)
		}
	}},
	{"deletecollection", func(w *modelWorld, _ string) {
		w.ask(http.MethodDelete, w.q.get(""))
		w.doubts(modelNames...)
	}},
	{"list", func(w *modelWorld, _ string) {
		w.ask(http.MethodGet, w.q.list(""))
		w.list(w.version)
		w.kept[w.q] = true
	}},
	{"list at 0", func(w *modelWorld, _ string) {
		w.lags = 100 + w.IntN(w.version-99)
		w.ask(http.MethodGet, w.q.list("resourceVersion=0"))
		w.list(w.lags)
	}},
	{"list refused", func(w *modelWorld, _ string) {
		w.refuses = true
		w.ask(http.MethodGet, w.q.list(""))
		maps.DeleteFunc(w.kept, func(q modelQuery, _ bool) bool { return q.api == w.q.api && q.red == w.q.red })
	}},
	{"table", func(w *modelWorld, _ string) {
		w.ask(http.MethodGet, table+w.q.api+"/"+w.q.resource())
		for name := range w.now() {
			w.alive[name] = max(w.alive[name], w.highest+1)
		}
	}},
	{"watch", func(w *modelWorld, _ string) { w.follow() }},
	{"watch", func(w *modelWorld, _ string) { w.follow() }},
	{"evict", func(w *modelWorld, _ string) {
		all := w.views.All()
		slices.SortFunc(all, func(a, b *view.View) int { return bytes.Compare(a.Key.Bytes(), b.Key.Bytes()) })
		if len(all) > 0 {
			w.views.Evict(all[w.IntN(len(all))])
		}
		clear(w.kept)
		clear(w.listed)
		w.goAway()
		for _, name := range modelNames {
			if got := w.reads(modelQuery{api: w.apis[0]}.get(name)); got != "404" && !strings.Contains(got, "=") {
				w.evicted[name] = true
			}
		}
		w.comeBack()
	}},
	{"restart", func(w *modelWorld, _ string) {
		w.restart()
		w.restarted()
	}},
	{"save", func(w *modelWorld, _ string) { w.save() }},
	{"kill", func(w *modelWorld, _ string) {
		if w.saved != nil {
			w.saved()
		}
	}},
	{"damage", func(w *modelWorld, _ string) { w.damage() }},
}

// Whatever a client reads, writes and watches, and whatever happens to the hub: what is read offline is what the user was
// shown last, and not what is gone, refused or in doubt; a 404 is proven; a list is exact; what was just read is there. SEEDS
// plays more; what clients of a real apiserver see is in test/fuzzcache.
func TestNoSequenceOfStepsBringsBackOrHidesAnObject(t *testing.T) {
	seeds, err := strconv.ParseUint(cmp.Or(os.Getenv("SEEDS"), "6"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range seeds {
		bubble(t, fmt.Sprint(seed), func(t *testing.T) {
			w := newModelWorld(t, seed)
			var did []string
			for range 40 {
				step, name := modelSteps[w.IntN(len(modelSteps))], modelNames[w.IntN(len(modelNames))]
				w.q = modelQuery{w.apis[w.IntN(len(w.apis))], w.IntN(3) == 0, w.IntN(3) == 0}
				step.do(w, name)
				did = append(did, fmt.Sprintf("%s %s %v @%d", step.name, name, w.q, w.version))
				w.refuses, w.accepted = false, false
				w.counts()
				w.goAway()
				w.check()
				w.comeBack()
				if t.Failed() {
					t.Fatalf("after\n%s", strings.Join(did, "\n"))
				}
			}
		})
	}
}

func (w *modelWorld) check() {
	for _, api := range w.apis {
		for _, q := range []modelQuery{{api, false, false}, {api, false, true}, {api, true, false}} {
			w.checkList(q, w.reads(strings.TrimSuffix(q.list(""), "?")))
			for _, name := range modelNames {
				if why := w.wrong(name, w.reads(q.get(name)), w.must[name][q.get(name)]); why != "" {
					w.Errorf("%s is %s: %s", q.get(name), w.reads(q.get(name)), why)
				}
			}
		}
	}
}

// wrong returns what is wrong with an answer to a GET, if something is.
func (w *modelWorld) wrong(name, got, must string) string {
	text, served := strings.CutPrefix(got, name+"=")
	version, _, _ := strings.Cut(text, "/")
	v, _ := strconv.Atoi(version)
	switch {
	case w.refused[name]:
		if served || got == "404" {
			return "it was refused"
		}
	case got == "403" && !w.damaged:
		return "it was not refused"
	case served && w.again[name] == v:
		return ""
	case served && v != w.newest[name]:
		return fmt.Sprintf("the user has seen %d", w.newest[name])
	case served && (v <= w.goneAt[name] || w.gone[w.states[v][name].uid]):
		return "it is gone"
	case served && w.doubt[name] > 0:
		return "it is in doubt"
	case got == "404" && w.alive[name] > w.absent[name], got == "404" && w.absent[name] == 0:
		return "nothing proves that"
	case must != "" && got != must:
		return "it was read by itself, as " + must
	}
	return ""
}

func (w *modelWorld) checkList(q modelQuery, got string) {
	version, _, ok := strings.Cut(got, ":")
	v, _ := strconv.Atoi(version)
	switch {
	case ok && (v < w.listed[q] || v > w.version || got != described(w.T, []byte(q.listJSON(w.states[v], v)))):
		w.Errorf("%s is %q; the client has seen %d", q.list(""), got, w.listed[q])
	case ok && v > w.listed[q]: // it is made of another list, and its client has seen that now
		w.listed[q] = v
		delete(w.kept, q)
	case !ok && w.kept[q]:
		w.Errorf("%s is %q, and was listed", q.list(""), got)
	}
}
