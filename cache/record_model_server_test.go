package cache

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// modelServer are apiservers with objects of one namespace, in one version of an API or two.
type modelServer struct {
	*rand.Rand
	apis    []string
	version int
	states  []map[string]modelObject // by versions
	changed []string                 // names, by versions
	born    int

	refuses  bool
	lags     int // the version of an apiserver that lags
	until    int // the version up to which watches send
	accepted bool
}

type modelObject struct {
	uid, version int
	label        string
}

// modelQuery is a list, or a watch.
type modelQuery struct {
	api       string
	red, meta bool
}

var modelNames = []string{"a", "b", "c"}

func modelURL(pod string) string { return "/api/v1/namespaces/ns/pods/" + pod }

func (q modelQuery) resource() string {
	if q.api == "/api/v1" {
		return "pods"
	}
	return "foos"
}

func (q modelQuery) form(of string) string {
	switch {
	case q.meta && of == "":
		return metadatas
	case q.meta:
		return metadata
	}
	return ""
}

func (q modelQuery) get(name string) string {
	return q.form(name) + q.api + "/namespaces/ns/" + q.resource() + "/" + name
}

func (q modelQuery) list(more string) string {
	if q.red {
		more += "&labelSelector=l%3Dred"
	}
	return q.form("") + q.api + "/" + q.resource() + "?" + strings.TrimPrefix(more, "&")
}

func (q modelQuery) selects(o modelObject) bool { return o.uid > 0 && (!q.red || o.label == "red") }

func (q modelQuery) text(body string) string {
	if q.meta {
		body = onlyMetadata(body)
	}
	if q.resource() == "foos" {
		body = strings.NewReplacer(`"Pod","apiVersion":"v1"`, `"Foo","apiVersion":"`+q.api[len("/apis/"):]+`"`, `"PodList","apiVersion":"v1"`,
			`"FooList","apiVersion":"`+q.api[len("/apis/"):]+`"`, `"kind":"pods"`, `"kind":"foos","group":"example.com"`).Replace(body)
	}
	return body
}

func (o modelObject) json(name string) string {
	return strings.Replace(podJSON(name, fmt.Sprint(o.version), o.label), `"u-`+name+`"`, fmt.Sprintf(`"u-%d"`, o.uid), 1)
}

func (m *modelServer) now() map[string]modelObject { return m.states[m.version] }

func (m *modelServer) change(name string, change func(state map[string]modelObject)) {
	state := maps.Clone(m.now())
	m.version++
	change(state)
	m.states, m.changed = append(m.states, state), append(m.changed, name)
}

func (m *modelServer) set(name string) {
	m.change(name, func(state map[string]modelObject) {
		o := state[name]
		if o.uid == 0 {
			m.born++
			o.uid = m.born
		}
		state[name] = modelObject{o.uid, m.version, []string{"red", "blue"}[m.IntN(2)]}
	})
}

func (m *modelServer) remove(name string) {
	if _, ok := m.now()[name]; ok {
		m.change(name, func(state map[string]modelObject) { delete(state, name) })
	}
}

// query is the one that a request is of.
func (m *modelServer) query(r *http.Request) modelQuery {
	q := modelQuery{api: m.apis[0], red: r.URL.Query().Has("labelSelector"), meta: strings.Contains(r.Header.Get("Accept"), "PartialObject")}
	for _, api := range m.apis {
		if strings.HasPrefix(r.URL.Path, api+"/") {
			q.api = api
		}
	}
	return q
}

func (m *modelServer) answer(r *http.Request) *http.Response {
	q := m.query(r)
	state, version := m.now(), m.version
	if r.URL.Query().Get("resourceVersion") == "0" {
		state, version = m.states[m.lags], m.lags
	}
	name := path.Base(r.URL.Path)
	o, ok := state[name]
	status := success
	switch {
	case m.refuses:
		return respond(http.StatusForbidden, "{}")
	case r.Method == http.MethodDelete && name == q.resource():
		for _, one := range modelNames {
			if m.IntN(2) > 0 {
				m.remove(one)
			}
		}
		return respond(http.StatusOK, status)
	case name == q.resource() && strings.Contains(r.Header.Get("Accept"), "as=Table"):
		return respond(http.StatusOK, noRows)
	case name == q.resource():
		return respond(http.StatusOK, q.text(q.listJSON(state, version)))
	case !ok:
		return respond(http.StatusNotFound, q.text(strings.Replace(noPodA, `"a"`, strconv.Quote(name), 1)))
	case r.Method == http.MethodDelete && m.accepted:
		if m.IntN(2) > 0 {
			m.remove(name)
		}
		return respond(http.StatusAccepted, status)
	case r.Method == http.MethodDelete:
		m.remove(name)
		return respond(http.StatusOK, q.text(fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Success","details":{"name":%q,"kind":"pods","uid":"u-%d"}}`, name, o.uid)))
	case r.Method != http.MethodGet:
		m.set(name)
		o = m.now()[name]
	}
	return respond(http.StatusOK, q.text(o.json(name)))
}

func (q modelQuery) listJSON(state map[string]modelObject, version int) string {
	var items []string
	for _, name := range modelNames {
		if o := state[name]; q.selects(o) {
			items = append(items, o.json(name))
		}
	}
	return podsJSON(fmt.Sprint(version), items...)
}

// watch sends what has happened since, in the query's stream, and stays open.
func (m *modelServer) watch(r *http.Request) *http.Response {
	q := m.query(r)
	from, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		panic(err)
	}
	body, out := io.Pipe()
	events := ""
	for v := from + 1; v <= m.until; v++ {
		name := m.changed[v]
		before, after := m.states[v-1][name], m.states[v][name]
		kind := map[[2]bool]string{{false, true}: "ADDED", {true, true}: "MODIFIED", {true, false}: "DELETED"}[[2]bool{q.selects(before), q.selects(after)}]
		if kind == "DELETED" {
			after = before
			after.version = v
		}
		if kind != "" {
			events += fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, after.json(name))
		}
	}
	if from <= m.until {
		events += podBookmark(fmt.Sprint(m.until), false)
	}
	go func() {
		_, _ = io.WriteString(out, q.text(events))
		<-r.Context().Done()
		out.CloseWithError(io.ErrUnexpectedEOF)
	}()
	res := respond(http.StatusOK, "")
	res.Body = body
	return res
}
