package cache

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
)

// modelServer is an apiserver with pods of one namespace. It records what one client has seen of
// them through the hub.
type modelServer struct {
	version int
	pods    map[string]modelPod
	born    int
	rand    *rand.Rand

	seen map[string]modelPod // as the client saw each last
	gone map[string]bool     // the client knows that what it saw is not there any more
}

type modelPod struct {
	uid, version int
	label        string
}

func (p modelPod) json(name string) string {
	return strings.Replace(podJSON(name, fmt.Sprint(p.version), p.label), `"u-`+name+`"`, fmt.Sprintf(`"u-%d"`, p.uid), 1)
}

func (m *modelServer) set(name string) {
	m.version++
	p, ok := m.pods[name]
	if !ok {
		m.born++
		p.uid = m.born
	}
	p.version, p.label = m.version, []string{"red", "blue"}[m.rand.IntN(2)]
	m.pods[name] = p
}

func (m *modelServer) remove(name string) {
	if _, ok := m.pods[name]; ok {
		m.version++
		delete(m.pods, name)
	}
}

func (m *modelServer) answer(r *http.Request) *http.Response {
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	p, ok := m.pods[name]
	if !ok {
		return respond(http.StatusNotFound, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"name":%q,"kind":"pods"}}`, name))
	}
	if r.Method == http.MethodDelete {
		m.remove(name)
		return respond(http.StatusOK, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Success","details":{"name":%q,"kind":"pods","uid":"u-%d"}}`, name, p.uid))
	}
	return respond(http.StatusOK, p.json(name))
}

func (m *modelServer) list(r *http.Request) *http.Response {
	var items []string
	for name, p := range m.pods {
		if l := r.URL.Query().Get("labelSelector"); l == "" || l == "l="+p.label {
			items = append(items, p.json(name))
		}
	}
	return respond(http.StatusOK, podsJSON(fmt.Sprint(m.version), items...))
}

// saw records what the client just got of one pod.
func (m *modelServer) saw(name string) {
	p, ok := m.pods[name]
	if ok {
		m.seen[name] = p
	}
	m.gone[name] = !ok
}

// modelStep is a named change of one pod or of all pods.
type modelStep struct {
	name string
	do   func(t *testing.T, w *modelWorld, pod string)
}

// modelWorld is a hub in front of a modelServer.
type modelWorld struct {
	*modelServer
	up    *upstream
	dir   string
	cache *Cache
	stop  func()
}

var (
	modelNames = []string{"a", "b", "c"}
	modelSteps = []modelStep{
		{"set", func(_ *testing.T, w *modelWorld, pod string) { w.set(pod) }},
		{"set", func(_ *testing.T, w *modelWorld, pod string) { w.set(pod) }},
		{"remove", func(_ *testing.T, w *modelWorld, pod string) { w.remove(pod) }},
		{"get", func(t *testing.T, w *modelWorld, pod string) {
			get(t, w.cache, modelURL(pod))
			w.saw(pod)
		}},
		{"delete", func(t *testing.T, w *modelWorld, pod string) {
			ask(t.Context(), t, w.cache, http.MethodDelete, modelURL(pod))
			w.saw(pod)
		}},
		{"list", func(t *testing.T, w *modelWorld, _ string) {
			get(t, w.cache, urlPods)
			for _, one := range modelNames {
				w.saw(one)
			}
		}},
		{"list red", func(t *testing.T, w *modelWorld, _ string) {
			get(t, w.cache, urlPods+"?labelSelector=l%3Dred")
			for _, one := range modelNames {
				if w.pods[one].label == "red" {
					w.saw(one)
				}
			}
		}},
		{"evict", func(_ *testing.T, w *modelWorld, _ string) {
			if all := w.cache.views.All(); len(all) > 0 {
				w.cache.views.Evict(all[w.rand.IntN(len(all))])
			}
		}},
		{"restart", func(t *testing.T, w *modelWorld, _ string) {
			w.stop()
			w.cache = openCache(t, w.dir, w.up)
			w.stop = runCache(t, w.cache)
		}},
	}
)

func modelURL(pod string) string { return "/api/v1/namespaces/ns/pods/" + pod }

func newModelWorld(t *testing.T, seed uint64) *modelWorld {
	t.Helper()
	w := &modelWorld{up: newUpstream(), dir: t.TempDir(), modelServer: &modelServer{
		version: 100, pods: map[string]modelPod{}, seen: map[string]modelPod{}, gone: map[string]bool{},
		rand: rand.New(rand.NewPCG(seed, 12)), //nolint:gosec // a test
	}}
	w.up.on("get", w.answer)
	w.up.on("delete", w.answer)
	w.up.on("list", w.list)
	w.cache = openCache(t, w.dir, w.up)
	w.stop = runCache(t, w.cache)
	return w
}

// Whatever a client reads and deletes, and whatever happens to the hub: offline the client never
// gets an object that it knows to be gone, nor a 404 for an object that it has seen later. SEEDS plays more; what
// clients of a real apiserver see is in test/fuzzcache.
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
				step, pod := modelSteps[w.rand.IntN(len(modelSteps))], modelNames[w.rand.IntN(len(modelNames))]
				step.do(t, w, pod)
				did = append(did, step.name+" "+pod)
				w.up.goAway()
				for _, one := range modelNames {
					w.check(t, one, get(t, w.cache, modelURL(one)), did)
				}
				w.up.comeBack()
			}
		})
	}
}

// check compares an offline answer with what the client knows.
func (m *modelServer) check(t *testing.T, name, got string, did []string) {
	t.Helper()
	seen, known := m.seen[name]
	served, version := strings.HasPrefix(got, name+"="), 0
	if served {
		fmt.Sscanf(got[len(name)+1:], "%d", &version) //nolint:errcheck // 0 is wrong, too
	}
	switch {
	case served && m.gone[name]:
		t.Fatalf("%s is gone, and is served as %q, after %v", name, got, did)
	case served && version > seen.version:
		t.Fatalf("%s is served as %q, and was never seen so, after %v", name, got, did)
	case got == "404" && known && !m.gone[name]:
		t.Fatalf("%s was seen at %d, and is said not to be there, after %v", name, seen.version, did)
	}
}
