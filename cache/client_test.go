package cache

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	urlPods  = "/api/v1/pods"
	urlPodA  = "/api/v1/namespaces/ns/pods/a"
	urlWatch = urlPods + "?watch=true&allowWatchBookmarks=true"
)

// podsKey is the view of all pods, as JSON.
func podsKey(user string) query.Key {
	return query.Key{User: user, Version: "v1", Resource: "pods"}
}

// tokenKey is the context key of a bearer token. A caller without one is the node.
type tokenKey struct{}

// acceptKey is the context key of the Accept header; the default is JSON.
type acceptKey struct{}

const protobuf = "application/vnd.kubernetes.protobuf"

// as returns a context of requests with a bearer token.
func as(ctx context.Context, token string) context.Context {
	return context.WithValue(ctx, tokenKey{}, token)
}

// gzipKey is the context key of clients that accept gzip.
type gzipKey struct{}

func acceptingGzip(ctx context.Context) context.Context {
	return context.WithValue(ctx, gzipKey{}, true)
}

// openCache opens a cache whose file is in dir. In a bubble its clock is the bubble's.
func openCache(t *testing.T, dir string, u *upstream, more ...func(*Options)) *Cache {
	t.Helper()
	o := testOptions(t)
	o.Unreachable = func(err error) bool { return errors.Is(err, errRefused) }
	o.IsNode = func(ctx context.Context) bool { return ctx.Value(tokenKey{}) == nil }
	for _, m := range more {
		m(&o)
	}
	c, err := Open(dir, u, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// runCache runs a cache until stop is called, or the test ends. Then it fails the test if a view
// is still held: each test looks for leaks.
func runCache(t *testing.T, c *Cache) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		nothingIsHeld(t, c)
	})
	t.Cleanup(stop)
	return stop
}

// bubble runs a subtest in a bubble, whose clock is its own.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// startCache starts a cache in a folder of its own.
func startCache(t *testing.T, u *upstream, more ...func(*Options)) *Cache {
	t.Helper()
	return startIn(t, t.TempDir(), u, more...)
}

// startIn starts a cache in a folder.
func startIn(t *testing.T, dir string, u *upstream, more ...func(*Options)) *Cache {
	t.Helper()
	c, _ := runIn(t, dir, u, more...)
	return c
}

// runIn is startIn for a cache that is stopped before the test ends.
func runIn(t *testing.T, dir string, u *upstream, more ...func(*Options)) (c *Cache, stop func()) {
	t.Helper()
	c = openCache(t, dir, u, more...)
	return c, runCache(t, c)
}

// startListed starts a cache that has listed these pods.
func startListed(t *testing.T, version string, pods ...string) (*upstream, *Cache) {
	t.Helper()
	u := newUpstream()
	u.shows(version, pods...)
	c := startCache(t, u)
	get(t, c, urlPods)
	return u, c
}

// nothingIsHeld fails the test if ended requests hold a view.
func nothingIsHeld(t *testing.T, c *Cache) {
	t.Helper()
	for _, v := range c.views.All() {
		if n, pages := v.Holders(), c.pages.Waiting(v); n != pages {
			t.Errorf("%s: %d requests are left, and %d pages wait", v, n, pages)
		}
	}
	if n := shares(c); n > 0 && c.pages.Len() == 0 {
		t.Errorf("%d objects are held for lists, and none is being read", n)
	}
}

// shares returns the number of objects that lists hold while they are read.
func shares(c *Cache) int {
	return c.views.Interned()
}

func newRequest(ctx context.Context, method, url string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, method, "http://apiserver"+url, nil)
	if err != nil {
		panic(err)
	}
	r.Header.Set("Accept", "application/json")
	if accept, ok := ctx.Value(acceptKey{}).(string); ok {
		r.Header.Set("Accept", accept)
	}
	if ctx.Value(gzipKey{}) != nil {
		r.Header.Set("Accept-Encoding", "gzip")
	}
	if token, ok := ctx.Value(tokenKey{}).(string); ok {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	factory := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	info, err := factory.NewRequestInfo(r)
	if err != nil {
		panic(err)
	}
	return r.WithContext(request.WithRequestInfo(ctx, info))
}

// ask sends a request, and describes the answer: "100: a=50 b=51" for a list, "a=50" for an
// object, otherwise the code, or the error.
func ask(ctx context.Context, t *testing.T, c *Cache, method, url string) string {
	t.Helper()
	res, err := c.RoundTrip(newRequest(ctx, method, url))
	if err != nil {
		for _, why := range []error{view.ErrNeverRead, view.ErrBehind, view.ErrDenied, identity.ErrUnknown} {
			if errors.Is(err, why) {
				return why.Error()
			}
		}
		return err.Error()
	}
	body, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return err.Error()
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Sprint(res.StatusCode)
	}
	return described(t, body)
}

// get is ask for a GET of the node.
func get(t *testing.T, c *Cache, url string) string {
	t.Helper()
	return ask(t.Context(), t, c, http.MethodGet, url)
}

// expect fails the test if the node reads something else.
func expect(t *testing.T, c *Cache, when, url, want string) {
	t.Helper()
	if got := get(t, c, url); got != want {
		t.Errorf("%s: %q, want %q", when, got, want)
	}
}

// offered is what a client sees of an object or list.
type offered struct {
	Metadata struct {
		Name            string            `json:"name"`
		ResourceVersion string            `json:"resourceVersion"`
		Labels          map[string]string `json:"labels"`
	} `json:"metadata"`
	Items []offered `json:"items"`
	Code  int       `json:"code"` // of a Status
}

func (o *offered) String() string {
	s := o.Metadata.Name + "=" + o.Metadata.ResourceVersion
	if l := o.Metadata.Labels["l"]; l != "" {
		s += "/" + l
	}
	return s
}

func described(t *testing.T, body []byte) string {
	t.Helper()
	var o offered
	if err := json.Unmarshal(body, &o); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if o.Metadata.Name != "" {
		return o.String()
	}
	all := []string{o.Metadata.ResourceVersion + ":"}
	for i := range o.Items {
		all = append(all, o.Items[i].String())
	}
	return strings.Join(all, " ")
}

// watcher is a client that watches.
type watcher struct {
	stop context.CancelFunc // goes away
	done chan struct{}      // closed when the stream has ended

	mu   sync.Mutex
	body bytes.Buffer
	err  error // of the stream's end, nil if it was clean
}

// startWatch starts a client that watches until the test ends.
func startWatch(ctx context.Context, t *testing.T, c *Cache, url string) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	res, err := c.RoundTrip(newRequest(ctx, http.MethodGet, url))
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("watch: %v %v", res, err)
	}
	w := &watcher{stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		_, err := io.Copy(w, res.Body)
		err = errors.Join(err, res.Body.Close())
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err = err
	}()
	t.Cleanup(func() {
		cancel()
		<-w.done
	})
	return w
}

// asksOnce opens a watch of a view that is lost. Its client is asked to list, which it does not.
func asksOnce(t *testing.T, u *upstream, c *Cache, url string) {
	t.Helper()
	asksOnceAs(t.Context(), t, u, c, url)
}

func asksOnceAs(ctx context.Context, t *testing.T, u *upstream, c *Cache, url string) {
	t.Helper()
	w := startWatch(ctx, t, c, url)
	<-u.feeds
	<-w.done
	if !strings.Contains(w.body.String(), "too old resource version") {
		t.Fatalf("the client of a view that is lost got %q, want 410", w.body.String())
	}
}

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.body.Write(p)
}

// heard describes the events that the client got: "ADDED:a=50 BOOKMARK:=60 ERROR:410".
func (w *watcher) heard(t *testing.T) string {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for d := json.NewDecoder(bytes.NewReader(w.body.Bytes())); ; {
		var e struct {
			Type   string  `json:"type"`
			Object offered `json:"object"`
		}
		switch err := d.Decode(&e); {
		case errors.Is(err, io.EOF):
			return strings.Join(all, " ")
		case err != nil:
			t.Fatal(err)
		case e.Type == "ERROR":
			all = append(all, fmt.Sprintf("ERROR:%d", e.Object.Code))
		default:
			all = append(all, e.Type+":"+e.Object.String())
		}
	}
}

// heardEvents splits heard into events.
func (w *watcher) heardEvents(t *testing.T) []string { return strings.Fields(w.heard(t)) }

// ended reports whether the stream has ended cleanly.
func (w *watcher) ended() bool {
	select {
	case <-w.done:
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.err == nil
	default:
		return false
	}
}

// pod is a bare pod in protobuf.
func pod(t *testing.T, name, version string, uid ...string) []byte {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: version}}
	for _, u := range uid {
		p.UID = types.UID(u)
	}
	b, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var podList = wire.ListMeta{TypeMeta: wire.TypeMeta{APIVersion: "v1", Kind: "PodList"}}

// shows describes a view: its version and members.
func shows(t *testing.T, v *view.View) string {
	t.Helper()
	snap := v.Snapshot(wire.JSON)
	if snap == nil {
		return "unusable"
	}
	defer snap.Close()
	s := snap.Version
	for _, m := range snap.Members {
		s += fmt.Sprintf(" %s=%s", m.Name, m.Version)
	}
	return s
}
