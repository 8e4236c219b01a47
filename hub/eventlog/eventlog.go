// Package eventlog remembers the last Events that were reported through the hub with the node's identity, as
// kubelet does, online or offline. They are in memory alone. Pods' own are not remembered: offline the hub
// accepts Events that an apiserver may refuse later, and a pod could hide those of all others.
package eventlog

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/wire"
	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	// most is how many Events are remembered.
	most = 50
	// maxBody bounds the answer that an Event is read from: kubelet's have some 800 bytes.
	maxBody = 16 << 10
	// maxMessage and maxField bound what is remembered, in bytes; apiservers permit messages of 1 KiB.
	maxMessage, maxField = 1 << 10, 253
)

// Log is the last Events. The zero value is empty, and usable. It is safe for concurrent use.
type Log struct {
	mu     sync.Mutex
	events []entry // the latest last
}

type entry struct {
	key string // namespace and name of the Event
	api.Event
}

// List returns the Events, the latest first.
func (l *Log) List() api.EventList {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := api.EventList{Items: []api.Event{}}
	for _, e := range slices.Backward(l.events) {
		list.Items = append(list.Items, e.Event)
	}
	return list
}

// Wrap returns a RoundTripper that remembers the Events in next's answers to the node. isNode reports whether
// a request is the node's.
func (l *Log) Wrap(next http.RoundTripper, isNode func(context.Context) bool) http.RoundTripper {
	return roundTripper{l, next, isNode}
}

type roundTripper struct {
	log    *Log
	next   http.RoundTripper
	isNode func(context.Context) bool
}

// RoundTrip implements http.RoundTripper. The answer to a POST, PUT or PATCH of an Event is the whole
// Event, as it is now. A copy is made of what the caller reads.
func (t roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(r)
	kind, ok := reports(r)
	if !ok || err != nil || res.StatusCode/100 != 2 || res.Header.Get("Content-Encoding") != "" || !t.isNode(r.Context()) {
		return res, err
	}
	return t.copying(res, kind), nil
}

// copying is apart from RoundTrip, so that requests for other things allocate nothing.
func (t roundTripper) copying(res *http.Response, kind wire.TypeMeta) *http.Response {
	res.Body = &copied{ReadCloser: res.Body, done: func(body []byte) { t.log.read(res.Header.Get("Content-Type"), body, kind) }}
	return res
}

// reports returns the type of the Event that a request creates or changes, and false for any other request,
// for which it allocates nothing.
func reports(r *http.Request) (wire.TypeMeta, bool) {
	if r.Method != http.MethodPost && r.Method != http.MethodPatch && r.Method != http.MethodPut {
		return wire.TypeMeta{}, false
	}
	version := corev1.SchemeGroupVersion
	path, ok := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/")
	if !ok {
		version = eventsv1.SchemeGroupVersion
		path, ok = strings.CutPrefix(r.URL.Path, "/apis/events.k8s.io/v1/namespaces/")
	}
	_, resource, _ := strings.Cut(path, "/") // "events", and the name unless it is a POST
	resource, name, _ := strings.Cut(resource, "/")
	if !ok || resource != "events" || strings.Contains(name, "/") || r.URL.Query().Has("dryRun") {
		return wire.TypeMeta{}, false
	}
	return wire.TypeMeta{APIVersion: version.String(), Kind: "Event"}, true
}

// copied is a body of which a copy is handed on once it was read to its end.
type copied struct {
	io.ReadCloser
	copy bytes.Buffer
	done func([]byte)
}

// Read implements io.Reader.
func (c *copied) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if c.done == nil {
		return n, err
	}
	if c.copy.Len()+n > maxBody {
		c.done, c.copy = nil, bytes.Buffer{}
		return n, err
	}
	c.copy.Write(p[:n])
	if err == io.EOF {
		c.done(c.copy.Bytes())
		c.done = nil
	}
	return n, err
}

// read remembers the Event in a body.
func (l *Log) read(contentType string, body []byte, kind wire.TypeMeta) {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return
	}
	object, err := convert.DecodeBody(mediaType, body, kind)
	if err != nil { // a Table, or metadata only: whoever asked for that shows no Event
		return
	}
	if key, e, ok := summary(object); ok {
		l.add(entry{key, e})
	}
}

// add puts an Event last. A later state of an Event replaces the earlier one.
func (l *Log) add(e entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(slices.DeleteFunc(l.events, func(other entry) bool { return other.key == e.key }), e)
	l.events = slices.Delete(l.events, 0, max(0, len(l.events)-most))
}

func summary(object runtime.Object) (key string, e api.Event, ok bool) {
	var meta metav1.ObjectMeta
	var about corev1.ObjectReference
	var first, last, created time.Time
	switch o := object.(type) {
	case *corev1.Event:
		meta, about, created = o.ObjectMeta, o.InvolvedObject, o.EventTime.Time
		first, last = o.FirstTimestamp.Time, o.LastTimestamp.Time
		e = api.Event{Type: o.Type, Reason: o.Reason, Message: o.Message, Source: cmp.Or(o.Source.Component, o.ReportingController), Count: o.Count}
		if o.Series != nil {
			e.Count, last = o.Series.Count, o.Series.LastObservedTime.Time
		}
	case *eventsv1.Event:
		meta, about, created = o.ObjectMeta, o.Regarding, o.EventTime.Time
		first, last = o.DeprecatedFirstTimestamp.Time, o.DeprecatedLastTimestamp.Time
		e = api.Event{Type: o.Type, Reason: o.Reason, Message: o.Note, Source: cmp.Or(o.ReportingController, o.DeprecatedSource.Component), Count: o.DeprecatedCount}
		if o.Series != nil {
			e.Count, last = o.Series.Count, o.Series.LastObservedTime.Time
		}
	default:
		return "", e, false
	}
	e.First = firstOf(first, created, meta.CreationTimestamp.Time, time.Now())
	e.Last = firstOf(last, e.First)
	e.Count = max(e.Count, 1)
	e.Namespace, e.Kind, e.Name = about.Namespace, about.Kind, about.Name
	e.Message = bounded(e.Message, maxMessage)
	for _, field := range []*string{&e.Namespace, &e.Kind, &e.Name, &e.Type, &e.Reason, &e.Source} {
		*field = bounded(*field, maxField)
	}
	return meta.Namespace + "/" + meta.Name, e, true
}

// firstOf returns the first time that is not zero, and that JSON can have: an Event may name any
// second, and one of the year 36812 would keep all others from being shown.
func firstOf(times ...time.Time) time.Time {
	for _, t := range times {
		if year := t.UTC().Year(); !t.IsZero() && year > 0 && year < 9999 {
			return t
		}
	}
	return time.Time{}
}

// bounded returns a copy of at most n bytes of valid UTF-8 in one line, so that nothing of the decoded object
// stays. Containers write some messages: what a terminal or browser would obey is left out.
func bounded(s string, n int) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }), " ")
	return strings.ToValidUTF8(strings.Clone(s[:min(len(s), n)]), "")
}
