package cache_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/test/internal/fakeapiserver"
)

// tally is what came of all rounds.
type tally struct {
	mu      sync.Mutex
	faults  map[string]int
	right   int // answers that were a state of the apiserver's
	refused int // 503
	oldest  int // versions between the last state and one that was answered, at most
	slowest time.Duration
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out strings.Builder
	fmt.Fprintf(&out, "%d answers were states that the apiserver had, the oldest of them %d writes old; %d were 503; the slowest start took %v\n",
		t.right, t.oldest, t.refused, t.slowest.Round(time.Millisecond))
	for _, name := range slices.Sorted(maps.Keys(t.faults)) {
		fmt.Fprintf(&out, "%4d × %s\n", t.faults[name], name)
	}
	return out.String()
}

func (t *tally) note(right bool, age int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !right {
		t.refused++
		return
	}
	t.right++
	t.oldest = max(t.oldest, age)
}

// check reads a view from a hub without a cloud, as a list and as initial events, and
// returns the version of the answer, 0 if there was none. An answer must be a state of
// the apiserver's.
func (w *world) check(v *view) (version int) {
	w.t.Helper()
	path := w.proxy + v.query.Path()
	code, body := get(w.t.Context(), path, v.accept, v.token)
	switch code {
	case http.StatusServiceUnavailable:
		w.total.note(false, 0)
		w.expectStatus(v.name, body)
	case http.StatusOK:
		list, err := fakeapiserver.Decode(body)
		if err != nil {
			w.t.Errorf("%s: the list cannot be read: %v", v.name, err)
			return 0
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			w.t.Errorf("%s: what came is no list: %v", v.name, err)
			return 0
		}
		about := list.(metav1.ListInterface)
		if about.GetContinue() != "" {
			w.t.Errorf("%s: there is more to come, though no limit was asked for", v.name)
		}
		version = w.compare(v.name, v.query, about.GetResourceVersion(), items)
	default:
		w.t.Errorf("%s: the list is %d %.300s", v.name, code, body)
	}
	if events := w.checkInitialEvents(v); events != version {
		w.t.Errorf("%s: the list has version %d, the watch with initial events has %d", v.name, version, events)
	}
	return version
}

// expectStatus looks whether a 503 is one that a Kubernetes client can read.
func (w *world) expectStatus(name string, body []byte) {
	w.t.Helper()
	status, err := fakeapiserver.Decode(body)
	if s, ok := status.(*metav1.Status); err != nil || !ok || s.Code != http.StatusServiceUnavailable {
		w.t.Errorf("%s: 503 without a Status: %.300s", name, body)
	}
}

// compare holds an answer against what the apiserver had at its version, which it
// returns.
func (w *world) compare(name string, q fakeapiserver.Query, text string, items []runtime.Object) int {
	w.t.Helper()
	version, err := strconv.Atoi(text)
	last := w.cloud.Version()
	if err != nil || version < 1 || version > last {
		w.t.Errorf("%s: its version is %q, the apiserver's last is %d", name, text, last)
		return 0
	}
	w.total.note(true, last-version)
	want := w.cloud.At(version, q)
	for _, item := range items {
		got := item.(fakeapiserver.Object)
		key := got.GetNamespace() + "/" + got.GetName()
		expected := want[key]
		delete(want, key)
		switch {
		case expected == nil:
			w.t.Errorf("%s at %d: %s is there, at %s, and should not be", name, version, key, got.GetResourceVersion())
		case !same(got, expected):
			w.t.Errorf("%s at %d: %s is at %s, and should be at %s; or its contents differ", name, version, key, got.GetResourceVersion(), expected.GetResourceVersion())
		}
	}
	for key := range want {
		w.t.Errorf("%s at %d: %s is missing", name, version, key)
	}
	return version
}

// same compares contents; only what is read alone has its kind.
func same(got, want fakeapiserver.Object) bool {
	got.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return equality.Semantic.DeepEqual(got, want)
}

// checkInitialEvents reads the view as informers do.
func (w *world) checkInitialEvents(v *view) (version int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	res, err := open(ctx, w.proxy+v.query.Path()+"&watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", v.accept, v.token)
	if err != nil {
		w.t.Errorf("%s: watch: %v", v.name, err)
		return 0
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode != http.StatusServiceUnavailable {
			w.t.Errorf("%s: the watch is %s %.300s", v.name, res.Status, body)
		}
		return 0
	}
	next := frames(res)
	var items []runtime.Object
	for {
		what, object, err := next()
		if err != nil {
			w.t.Errorf("%s: the watch breaks off after %d events: %v", v.name, len(items), err)
			return 0
		}
		switch what {
		case watch.Added:
			items = append(items, object)
		case watch.Bookmark:
			about := object.(fakeapiserver.Object)
			if about.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
				return w.compare(v.name+", initial events", v.query, about.GetResourceVersion(), items)
			}
		default:
			w.t.Errorf("%s: %s among the initial events: %v", v.name, what, object)
			return 0
		}
	}
}

// frames returns what reads one event after the other.
func frames(res *http.Response) func() (watch.EventType, runtime.Object, error) {
	if strings.HasPrefix(res.Header.Get("Content-Type"), asJSON) {
		decoder := json.NewDecoder(res.Body)
		return func() (watch.EventType, runtime.Object, error) {
			var event struct {
				Type   watch.EventType
				Object json.RawMessage
			}
			if err := decoder.Decode(&event); err != nil {
				return "", nil, err
			}
			object, err := fakeapiserver.Decode(event.Object)
			return event.Type, object, err
		}
	}
	return func() (watch.EventType, runtime.Object, error) {
		var size [4]byte
		if _, err := io.ReadFull(res.Body, size[:]); err != nil {
			return "", nil, err
		}
		body := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(res.Body, body); err != nil {
			return "", nil, err
		}
		var event metav1.WatchEvent
		if err := event.Unmarshal(body); err != nil {
			return "", nil, err
		}
		object, err := fakeapiserver.Decode(event.Object.Raw)
		return watch.EventType(event.Type), object, err
	}
}

// checkSingle reads an object by its name: it must be as it once was. Not to be
// there is an answer only where it once was not.
func (w *world) checkSingle(o one) {
	w.t.Helper()
	states := w.cloud.Of(o.resource, o.namespace, o.name)
	switch code, body := get(w.t.Context(), w.proxy+o.path(), o.accept, o.token); code {
	case http.StatusServiceUnavailable:
		w.total.note(false, 0)
		w.expectStatus(o.path(), body)
	case http.StatusNotFound:
		for _, state := range states {
			if state == nil {
				return
			}
		}
		w.t.Errorf("%s is 404, and always was there", o.path())
	case http.StatusOK:
		object, err := fakeapiserver.Decode(body)
		if err != nil {
			w.t.Errorf("%s cannot be read: %v", o.path(), err)
			return
		}
		got := object.(fakeapiserver.Object)
		version, _ := strconv.Atoi(got.GetResourceVersion())
		if want := states[version]; want == nil || !same(got, want) {
			w.t.Errorf("%s is at version %q with contents that it never had there", o.path(), got.GetResourceVersion())
			return
		}
		w.total.note(true, 0)
	default:
		w.t.Errorf("%s is %d %.300s", o.path(), code, body)
	}
}
