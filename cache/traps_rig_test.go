package cache

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/view"
)

// trapRig is a hub whose apiservers answer what a test has its clients ask, and nothing else: what the hub asks by
// itself fails. So what it knows is what the clients were shown.
type trapRig struct {
	*testing.T
	*upstream
	*Cache
	dir      string
	halt     func()
	watching []*watcher
	feed     *io.PipeWriter // of the watch that was opened last
}

func newTrapRig(t *testing.T) *trapRig {
	t.Helper()
	w := &trapRig{T: t, upstream: newUpstream(), dir: filepath.Join(t.TempDir(), "cache")}
	for _, verb := range []string{"get", "list", "delete", "check"} {
		w.onText(verb, http.StatusServiceUnavailable, "{}")
	}
	w.Cache, w.halt = runIn(t, w.dir, w.upstream)
	return w
}

// restart restarts the hub. Its clients are gone.
func (w *trapRig) restart() {
	w.Helper()
	for _, one := range w.watching {
		one.stop()
		<-one.done
	}
	w.watching = nil
	w.halt()
	w.Cache, w.halt = runIn(w.T, w.dir, w.upstream)
}

// does sends a request, a GET if there is only a URL, and has it answered.
func (w *trapRig) does(request string, code int, body string) {
	w.Helper()
	method, url, ok := strings.Cut(request, " ")
	if !ok {
		method, url = http.MethodGet, request
	}
	ctx, url := inForm(w.Context(), url)
	var asked atomic.Bool
	answer := func(r *http.Request) *http.Response {
		if r.URL.RequestURI() != url || asked.Swap(true) {
			return respond(http.StatusServiceUnavailable, "{}")
		}
		return respond(code, body)
	}
	for _, verb := range []string{"get", "list", "delete"} {
		w.on(verb, answer)
	}
	res, err := w.Cache.RoundTrip(newRequest(ctx, method, url))
	if err != nil {
		w.Fatalf("%s: %v", request, err)
	}
	got, err := io.ReadAll(res.Body)
	if res.Body.Close(); err != nil || res.StatusCode != code || string(got) != body {
		w.Fatalf("%s is answered with %d %q, %v", request, res.StatusCode, got, err)
	}
	synctest.Wait()
}

// lists has pods listed.
func (w *trapRig) lists(url, version string, pods ...string) {
	w.Helper()
	w.does(url, http.StatusOK, podsJSON(version, pods...))
}

// pages has the first page of a list read, which is not the last one.
func (w *trapRig) pages(version string, pods ...string) {
	w.Helper()
	page := strings.Replace(podsJSON(version, pods...), `"resourceVersion"`, `"continue":"next","resourceVersion"`, 1)
	w.does(urlPods+"?limit=2", http.StatusOK, page)
}

// watches opens a watch, and sends events to it.
func (w *trapRig) watches(url string, events ...string) {
	w.Helper()
	ctx, url := inForm(w.Context(), url)
	w.watching = append(w.watching, startWatch(ctx, w.T, w.Cache, url))
	w.feed = <-w.feeds
	w.sends(events...)
}

// sends sends events to the watch that was opened last.
func (w *trapRig) sends(events ...string) {
	w.Helper()
	send(w.T, w.feed, events...)
	synctest.Wait()
}

// breaks ends the watch that was opened last.
func (w *trapRig) breaks() {
	w.feed.CloseWithError(io.ErrUnexpectedEOF)
	time.Sleep(time.Minute)
}

// A URL may begin with the form in which it is read, if that is not plain JSON.
const (
	table, metadata, metadatas = "table:", "metadata:", "metadatas:"

	urlPodC  = urlInNS + "/c"
	urlRed   = urlPods + "?labelSelector=l%3Dred"
	noPodA   = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"name":"a","kind":"pods"}}`
	success  = `{"kind":"Status","apiVersion":"v1","status":"Success"}`
	noRows   = `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"110"},"rows":[]}`
	urlOnlyB = "/api/v1/namespaces/ns/secrets?fieldSelector=metadata.name%3Db"
)

func inForm(ctx context.Context, url string) (context.Context, string) {
	for form, accept := range map[string]string{
		table: asTable, metadata: "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
		metadatas: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
	} {
		if rest, ok := strings.CutPrefix(url, form); ok {
			return context.WithValue(ctx, acceptKey{}, accept), rest
		}
	}
	return ctx, url
}

// onlyMetadata is what an apiserver sends of pods to a client that wants their metadata.
func onlyMetadata(body string) string {
	return strings.NewReplacer(
		`"PodList","apiVersion":"v1"`, `"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1"`,
		`"Pod","apiVersion":"v1"`, `"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"`,
	).Replace(body)
}

// reads returns the answer to a GET without the cloud: what is read, or its code.
func (w *trapRig) reads(url string) string {
	w.Helper()
	ctx, url := inForm(w.Context(), url)
	got := ask(ctx, w.T, w.Cache, http.MethodGet, url)
	switch {
	case got == view.ErrDenied.Error():
		return fmt.Sprint(http.StatusForbidden)
	case got == "404", strings.Contains(got, "="), strings.HasSuffix(got, ":"):
		return got
	}
	return fmt.Sprint(http.StatusServiceUnavailable)
}

// answers are what is read of URLs without the cloud. "|" separates what may be read.
type answers map[string]string

// loses takes the cloud away, and compares what is read then, and after a restart of the hub.
func (w *trapRig) loses(want answers) {
	w.Helper()
	time.Sleep(10 * time.Second) // all is on disk
	w.goAway()
	synctest.Wait()
	for _, when := range []string{"offline", "offline, after a restart"} {
		for _, url := range slices.Sorted(maps.Keys(want)) {
			if got := w.reads(url); !slices.Contains(strings.Split(want[url], "|"), got) {
				w.Errorf("%s, %s is %q, want %q", when, url, got, want[url])
			}
		}
		w.restart()
	}
}

// counts recounts what the cache counts of what it has, which its bounds are made of.
func (w *trapRig) counts() {
	w.Helper()
	synctest.Wait()
	if err := w.views.Check(); err != nil {
		w.Error(err)
	}
}

// trap is what clients are shown before the cloud is lost, and what they read then.
type trap struct {
	shown func(w *trapRig)
	want  answers
}

func playTraps(t *testing.T, traps map[string]trap) {
	t.Helper()
	for name, one := range traps {
		bubble(t, name, func(t *testing.T) {
			w := newTrapRig(t)
			one.shown(w)
			w.counts()
			w.loses(one.want)
			w.counts()
		})
	}
}

// eventLog are apiservers that have what happened to pods, and send it to watches from any version on.
type eventLog struct {
	*upstream

	mu      sync.Mutex
	version int
	pods    map[string]int // their versions
	events  []podChange
}

type podChange struct {
	version    int
	kind, name string
}

func newEventLog(version int) *eventLog {
	l := &eventLog{upstream: newUpstream(), version: version, pods: map[string]int{}}
	l.on("list", l.list)
	l.on("check", l.list)
	l.on("get", l.get)
	l.on("watch", l.watch)
	return l
}

// happens changes a pod, or deletes it.
func (l *eventLog) happens(kind, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version++
	l.events = append(l.events, podChange{l.version, kind, name})
	if l.pods[name] = l.version; kind == "DELETED" {
		delete(l.pods, name)
	}
}

// state is the list of now.
func (l *eventLog) state() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for _, name := range slices.Sorted(maps.Keys(l.pods)) {
		all = append(all, podJSON(name, strconv.Itoa(l.pods[name])))
	}
	return podsJSON(strconv.Itoa(l.version), all...)
}

func (l *eventLog) list(*http.Request) *http.Response { return respond(http.StatusOK, l.state()) }

func (l *eventLog) get(r *http.Request) *http.Response {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := filepath.Base(r.URL.Path)
	if version, ok := l.pods[name]; ok {
		return respond(http.StatusOK, podJSON(name, strconv.Itoa(version)))
	}
	return notFoundPod(r)
}

func (l *eventLog) watch(r *http.Request) *http.Response {
	from, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		panic(err)
	}
	body, out := io.Pipe()
	go func() {
		defer out.CloseWithError(io.ErrUnexpectedEOF)
		for marked := time.Now(); l.isUp(); {
			var text string
			if text, from = l.since(from); time.Since(marked) > time.Minute {
				text, marked = text+podBookmark(strconv.Itoa(from), false), time.Now()
			}
			if text != "" {
				_, _ = io.WriteString(out, text)
			}
			select {
			case <-r.Context().Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	res := respond(http.StatusOK, "")
	res.Body = body
	return res
}

// since returns the events after a version, and the version of now.
func (l *eventLog) since(version int) (text string, now int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.version > version {
			text += podEvent(e.kind, e.name, strconv.Itoa(e.version))
		}
	}
	return text, l.version
}

// reflector lists pods, and watches them, as client-go does: from where it is, as long as it may.
type reflector struct {
	stop, done chan struct{}
	version    string
}

// startReflector starts a reflector of the node at a version, or with a list. It goes on until end is called, or the test
// ends.
func startReflector(t *testing.T, c *Cache, version string) *reflector {
	t.Helper()
	r := &reflector{stop: make(chan struct{}), done: make(chan struct{}), version: version}
	go func() {
		defer close(r.done)
		for {
			select {
			case <-r.stop:
				return
			case <-time.After(time.Second):
			}
			if r.version == "" {
				r.list(t, c)
			} else {
				r.watch(t, c)
			}
		}
	}()
	t.Cleanup(r.end)
	return r
}

func (r *reflector) end() {
	select {
	case <-r.stop:
	default:
		close(r.stop)
	}
	<-r.done
}

func (r *reflector) list(t *testing.T, c *Cache) {
	t.Helper()
	version, _, _ := strings.Cut(get(t, c, urlPods), ":")
	if _, err := strconv.Atoi(version); err == nil {
		r.version = version
	}
}

func (r *reflector) watch(t *testing.T, c *Cache) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		select {
		case <-r.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	res, err := c.RoundTrip(newRequest(ctx, http.MethodGet, urlWatch+"&resourceVersion="+r.version))
	if err != nil {
		return
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusGone {
		r.version = ""
	}
	for d := json.NewDecoder(res.Body); res.StatusCode == http.StatusOK; {
		var e struct {
			Type   string
			Object offered
		}
		if d.Decode(&e) != nil {
			return
		}
		if e.Type == "ERROR" {
			r.version = ""
			return
		}
		r.version = e.Object.Metadata.ResourceVersion
	}
}
