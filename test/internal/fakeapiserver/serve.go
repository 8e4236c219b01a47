package fakeapiserver

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// ServeHTTP answers as an apiserver does.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, err := parse(r)
	switch {
	case errors.Is(err, errUnknownPath) || r.Method != http.MethodGet:
		s.count("other")
		s.other(w, r)
	case err != nil:
		s.count("other")
		fail(w, apierrors.NewBadRequest(err.Error()))
	case q.name != "":
		s.count("get")
		s.get(w, q)
	case q.watch:
		s.count("watch")
		s.watch(w, r, q)
	case q.limit == 1 && q.continuation == "":
		s.count("version")
		s.list(w, q)
	default:
		s.count("list")
		s.list(w, q)
	}
}

// other finds the server alive, reviews whose a bearer token is (a user of that name), and
// has nothing else.
func (s *Server) other(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/livez", "/readyz", "/healthz":
		fmt.Fprint(w, "ok")
	case "/apis/authentication.k8s.io/v1/selfsubjectreviews":
		name := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		w.Header().Set("Content-Type", json.mediaType)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","metadata":{},"status":{"userInfo":{"username":%q,"uid":"uid of %s","groups":["system:authenticated"]}}}`, name, name)
	default:
		fail(w, apierrors.NewNotFound(metav1.SchemeGroupVersion.WithResource("paths").GroupResource(), r.URL.Path))
	}
}

func fail(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	w.Header().Set("Content-Type", json.mediaType)
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(json.encode(&status))
}

func (s *Server) get(w http.ResponseWriter, q request) {
	e := s.at(s.Version(), Query{Resource: q.Resource, Namespace: q.Namespace})[q.Namespace+"/"+q.name]
	if e == nil {
		fail(w, apierrors.NewNotFound(q.resource.Kind.GroupVersion().WithResource(q.Resource).GroupResource(), q.name))
		return
	}
	w.Header().Set("Content-Type", q.encoding.mediaType)
	_, _ = w.Write(e.bytes(q.encoding, q.resource))
}

// list answers with the latest state, whatever version is asked for, or with the
// next page of the state that the first page was of.
func (s *Server) list(w http.ResponseWriter, q request) {
	version, offset := s.Version(), 0
	if q.continuation != "" {
		if _, err := fmt.Sscanf(q.continuation, "%d-%d", &version, &offset); err != nil {
			fail(w, apierrors.NewBadRequest("continue: "+q.continuation))
			return
		}
	}
	events := sorted(s.at(version, q.Query))
	events = events[min(offset, len(events)):]
	list := q.resource.list()
	about := list.(metav1.ListInterface)
	about.SetResourceVersion(strconv.Itoa(version))
	if q.limit > 0 && len(events) > q.limit {
		left := int64(len(events) - q.limit)
		about.SetRemainingItemCount(&left)
		about.SetContinue(fmt.Sprintf("%d-%d", version, offset+q.limit))
		events = events[:q.limit]
	}
	items := make([]runtime.Object, 0, len(events))
	for _, e := range events {
		items = append(items, e.object)
	}
	if err := meta.SetList(list, items); err != nil {
		fail(w, apierrors.NewInternalError(err))
		return
	}
	gvk := q.resource.Kind
	gvk.Kind += "List"
	list.GetObjectKind().SetGroupVersionKind(gvk)
	w.Header().Set("Content-Type", q.encoding.mediaType)
	_, _ = w.Write(q.encoding.encode(list))
}

// watch streams what a query sees of the log, until the client goes away.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, q request) {
	w.Header().Set("Content-Type", q.encoding.watchType())
	out := http.NewResponseController(w)
	send := func(what watch.EventType, object []byte) {
		_, _ = w.Write(q.encoding.frame(what, object)) // r.Context ends with the client
	}
	version, err := strconv.Atoi(q.version)
	fromStart := err != nil || version == 0 || q.initialEvents
	if fromStart {
		version = s.Version()
		for _, e := range sorted(s.at(version, q.Query)) {
			send(watch.Added, e.bytes(q.encoding, q.resource))
		}
		if q.initialEvents {
			send(watch.Bookmark, q.bookmark(version, true))
		}
	}
	if !fromStart && s.forgotten(version) {
		status := apierrors.NewResourceExpired("too old resource version").Status()
		status.Kind, status.APIVersion = "Status", "v1"
		send(watch.Error, q.encoding.encode(&status))
		return
	}
	if err := out.Flush(); err != nil {
		return
	}
	var bookmarks <-chan time.Time
	if q.bookmarks && s.Bookmarks > 0 {
		ticker := time.NewTicker(s.Bookmarks)
		defer ticker.Stop()
		bookmarks = ticker.C
	}
	for {
		events, more := s.since(version)
		for _, e := range events {
			version = e.version
			if what, ok := q.sees(e); ok {
				send(what, e.bytes(q.encoding, q.resource))
			}
		}
		if err := out.Flush(); err != nil {
			return
		}
		select {
		case <-more:
		case <-bookmarks:
			send(watch.Bookmark, q.bookmark(version, false))
		case <-r.Context().Done():
			return
		}
	}
}

// sees returns what an event is to a query: one that an object leaves is its
// deletion.
func (q *request) sees(e *event) (watch.EventType, bool) {
	if e.resource != q.Resource {
		return "", false
	}
	before := e.before != nil && q.selects(e.before)
	after := e.what != watch.Deleted && q.selects(e.object)
	switch {
	case before && after:
		return watch.Modified, true
	case after:
		return watch.Added, true
	case before:
		return watch.Deleted, true
	}
	return "", false
}

// bookmark is an object without anything but a version.
func (q *request) bookmark(version int, end bool) []byte {
	object, err := scheme.New(q.resource.Kind)
	if err != nil {
		panic(err) // Resources are all in the scheme
	}
	o := object.(Object)
	o.SetResourceVersion(strconv.Itoa(version))
	if end {
		o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	o.GetObjectKind().SetGroupVersionKind(q.resource.Kind)
	return q.encoding.encode(o)
}

func encodingOf(accept string) encoding {
	if strings.HasPrefix(accept, protobuf.mediaType) {
		return protobuf
	}
	return json
}
