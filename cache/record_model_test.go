package cache

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// modelServer is an apiserver with pods of one namespace, and what one client has seen of
// them through the hub.
type modelServer struct {
	version int
	pods    map[string]modelPod
	born    int

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
	p.version, p.label = m.version, []string{"red", "blue"}[rand.IntN(2)]
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

// saw notes what the client was just told of one pod.
func (m *modelServer) saw(name string) {
	p, ok := m.pods[name]
	if ok {
		m.seen[name] = p
	}
	m.gone[name] = !ok
}

// Whatever a client reads, deletes and is refused, and whatever happens meanwhile and to the
// hub: while the cloud is away it never gets what it knows to be gone, never hears that
// something is not there which it saw later than that, and never gets back in time.
func TestNoSequenceBringsBackOrHides(t *testing.T) {
	names := []string{"a", "b", "c"}
	for seed := range 60 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u, dir := newUpstream(), t.TempDir()
				m := &modelServer{version: 100, pods: map[string]modelPod{}, seen: map[string]modelPod{}, gone: map[string]bool{}}
				u.on("get", m.answer)
				u.on("delete", m.answer)
				u.on("list", m.list)
				c := openCache(t, dir, u)
				stop := runCache(t, c)
				var did []string
				for range 40 {
					name := names[rand.IntN(len(names))]
					url := "/api/v1/namespaces/ns/pods/" + name
					ctx := t.Context()
					switch step := rand.IntN(12); step {
					case 0, 1, 2:
						m.set(name)
						did = append(did, "set "+name)
					case 3:
						m.remove(name)
						did = append(did, "remove "+name)
					case 4, 5:
						ask(ctx, t, c, http.MethodGet, url)
						m.saw(name)
						did = append(did, "get "+name)
					case 6:
						_, ok := m.pods[name]
						ask(ctx, t, c, http.MethodDelete, url)
						if m.gone[name] = true; ok {
							delete(m.seen, name)
						}
						did = append(did, "delete "+name)
					case 7, 8:
						ask(ctx, t, c, http.MethodGet, urlPods)
						for _, one := range names {
							m.saw(one)
						}
						did = append(did, "list")
					case 9, 10:
						ask(ctx, t, c, http.MethodGet, urlPods+"?labelSelector=l%3Dred")
						for _, one := range names {
							if m.pods[one].label == "red" {
								m.saw(one)
							}
						}
						did = append(did, "list red")
					case 11:
						if rand.IntN(2) == 0 {
							all := c.views.all()
							if len(all) > 0 {
								c.views.evict(all[rand.IntN(len(all))])
							}
							did = append(did, "evict")
							break
						}
						time.Sleep(5 * time.Second)
						stop()
						c = openCache(t, dir, u)
						stop = runCache(t, c)
						did = append(did, "restart")
					}
					u.goAway()
					for _, one := range names {
						m.check(t, one, get(t, c, "/api/v1/namespaces/ns/pods/"+one), did)
					}
					u.comeBack()
				}
			})
		})
	}
}

// check holds an answer that the client got while the cloud was away against what it knows.
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
