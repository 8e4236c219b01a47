// Package fakeapiserver is an apiserver made for tests that have to know what is true: it
// has no storage behind it, remembers every state that it ever had, and returns what a
// query returned at any of its versions.
//
//	s := fakeapiserver.New()
//	s.Put("configmaps", &corev1.ConfigMap{…})
//	server := httptest.NewServer(s)
//	…
//	want := s.At(version, query)
//
// It serves LIST (with pages, selectors and versions), WATCH (from a version, with
// initial events, with bookmarks) and GET, in JSON and protobuf, for the resources
// of Resources, and enough besides for a hub to find it alive. It takes every caller
// for one who may read everything. Writes come from the test, by Put and Delete.
//
// Versions count all writes, from 1. A Server is safe for concurrent use.
package fakeapiserver

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// Object is what the server keeps.
type Object interface {
	runtime.Object
	metav1.Object
}

// event is one write. Its object is never changed again.
type event struct {
	version  int
	what     watch.EventType
	resource string
	object   Object // of a deletion, the last state, at the deletion's version
	before   Object // what it replaces; nil if there was none

	encoded sync.Map // encoding → its self-describing bytes
}

// Server is the server. Use it as an http.Handler.
type Server struct {
	// Bookmarks is the time between two bookmarks of a watch that has asked for
	// them; 0: never. Set it before the first request.
	Bookmarks time.Duration

	mu     sync.Mutex
	log    []*event // log[i] has version i+1; guarded by mu
	latest map[string]map[string]*event
	more   chan struct{}  // closed, and replaced, when log grows; guarded by mu
	counts map[string]int // requests by verb; guarded by mu
	oldest int            // the first version that a watch may begin from; guarded by mu
}

// New returns a server without objects.
func New() *Server {
	return &Server{latest: map[string]map[string]*event{}, more: make(chan struct{}), counts: map[string]int{}}
}

// Put makes or replaces an object, and returns its version. The server keeps the
// object, and completes its metadata.
func (s *Server) Put(resource string, object Object) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.latest[resource][keyOf(object)]
	object.SetUID(types.UID("uid-" + strconv.Itoa(len(s.log)+1)))
	if before != nil {
		object.SetUID(before.object.GetUID())
	}
	what := watch.Added
	if before != nil {
		what = watch.Modified
	}
	return s.appendLocked(what, resource, object, before)
}

// Delete removes an object; 0 if it is not there.
func (s *Server) Delete(resource, namespace, name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.latest[resource][namespace+"/"+name]
	if before == nil {
		return 0
	}
	return s.appendLocked(watch.Deleted, resource, before.object.DeepCopyObject().(Object), before)
}

func (s *Server) appendLocked(what watch.EventType, resource string, object Object, before *event) int {
	version := len(s.log) + 1
	object.SetResourceVersion(strconv.Itoa(version))
	e := &event{version: version, what: what, resource: resource, object: object}
	if before != nil {
		e.before = before.object
	}
	s.log = append(s.log, e)
	if s.latest[resource] == nil {
		s.latest[resource] = map[string]*event{}
	}
	if what == watch.Deleted {
		delete(s.latest[resource], keyOf(object))
	} else {
		s.latest[resource][keyOf(object)] = e
	}
	close(s.more)
	s.more = make(chan struct{})
	return version
}

// Version is the latest.
func (s *Server) Version() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.log)
}

// Forget makes watches from versions before the latest end with 410, as after etcd
// was compacted. Those that are open go on.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = len(s.log)
}

func (s *Server) forgotten(version int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return version < s.oldest
}

// Requests is how many requests with this verb have come: "list", "watch", "get",
// "other", or "version" for a list of one object, which only asks for the version.
func (s *Server) Requests(verb string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[verb]
}

// At returns what the query returned at a version, by "namespace/name". What it
// returns must not be changed.
func (s *Server) At(version int, q Query) map[string]Object {
	out := map[string]Object{}
	for key, e := range s.at(version, q) {
		out[key] = e.object
	}
	return out
}

func (s *Server) at(version int, q Query) map[string]*event {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]*event{}
	if version >= len(s.log) {
		maps.Copy(out, s.latest[q.Resource])
		maps.DeleteFunc(out, func(_ string, e *event) bool { return !q.selects(e.object) })
		return out
	}
	for _, e := range s.log[:version] {
		switch {
		case e.resource != q.Resource:
		case e.what == watch.Deleted || !q.selects(e.object):
			delete(out, keyOf(e.object))
		default:
			out[keyOf(e.object)] = e
		}
	}
	return out
}

// since returns the events after a version, and a channel that is closed when there
// are more.
func (s *Server) since(version int) ([]*event, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log[min(version, len(s.log)):len(s.log):len(s.log)], s.more
}

func (s *Server) count(verb string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[verb]++
}

func keyOf(o Object) string { return o.GetNamespace() + "/" + o.GetName() }

func sorted(events map[string]*event) []*event {
	keys := slices.Sorted(maps.Keys(events))
	out := make([]*event, 0, len(keys))
	for _, key := range keys {
		out = append(out, events[key])
	}
	return out
}

var _ http.Handler = (*Server)(nil)
