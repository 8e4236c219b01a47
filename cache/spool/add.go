package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/patch"
	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Request is a POST of an event, or a PUT or PATCH of one.
type Request struct {
	Method          string
	Group, Version  string
	Namespace, Name string // of the path; a POST has no name
	ContentType     string
	Accept          string
	Body            []byte
	UserAgent       string // an apiserver derives the field manager from it
	User            string // the caller; quota.Node for the node
	Authorization   string // header of a caller that is not the node; it counts against MaxBytes
}

// Answer is the answer to the client.
type Answer struct {
	Code        int // 201 or 200
	ContentType string
	Body        []byte
}

// Add answers a request, and keeps its event, but no slice of the body.
//
// Errors are ErrFull; convert.ErrNotAcceptable; patch.ErrUnsupported for other methods and
// resources, server-side apply, and callers without a token to send the event with; or an
// apierrors.APIStatus: 404 for a PUT or PATCH of an event that this caller has none of in the spool, and those for
// invalid requests.
func (s *Spool) Add(r Request) (Answer, error) {
	t := wire.TypeMeta{APIVersion: schema.GroupVersion{Group: r.Group, Version: r.Version}.String(), Kind: "Event"}
	if t.APIVersion != corev1.SchemeGroupVersion.String() && t.APIVersion != eventsv1.SchemeGroupVersion.String() {
		return Answer{}, fmt.Errorf("spool an event of %s: %w", t.APIVersion, patch.ErrUnsupported)
	}
	if r.User != quota.Node && r.Authorization == "" {
		return Answer{}, fmt.Errorf("spool an event of %s, who has no token to send it with: %w", r.User, patch.ErrUnsupported)
	}
	var (
		event runtime.Object
		code  int
		err   error
	)
	switch r.Method {
	case http.MethodPost:
		code = http.StatusCreated
		event, err = s.create(&r, t)
	case http.MethodPut, http.MethodPatch:
		code = http.StatusOK
		event, err = s.merge(&r, t)
	default:
		err = fmt.Errorf("%s of an event: %w", r.Method, patch.ErrUnsupported)
	}
	if err != nil {
		if errors.Is(err, ErrFull) {
			s.metrics.dropped.WithLabelValues(reasonFull).Inc()
		}
		return Answer{}, err
	}
	contentType, body, err := convert.EncodeBody(r.Accept, event)
	return Answer{Code: code, ContentType: contentType, Body: body}, err
}

// create spools an event, in place of one that the caller has posted under this name before.
func (s *Spool) create(r *Request, t wire.TypeMeta) (runtime.Object, error) {
	event, err := patch.Decode(r.ContentType, r.Body, t)
	if err != nil {
		return nil, err
	}
	m, err := meta.Accessor(event)
	if err != nil {
		return nil, err
	}
	if err := complete(m, r.Namespace); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return event, s.putLocked(r.head(t, m.GetName()), r.Authorization, event)
}

func (r *Request) head(t wire.TypeMeta, event string) head {
	return head{
		User:       r.User,
		APIVersion: t.APIVersion,
		Namespace:  r.Namespace,
		Name:       event,
		UserAgent:  r.UserAgent[:min(len(r.UserAgent), maxUserAgent)],
	}
}

// putLocked keeps an event in place of the caller's one of this name, or behind all others. It is sent as this
// request's caller: the newest token is good for longest.
func (s *Spool) putLocked(h head, authorization string, event runtime.Object) error {
	value, err := recordOf(h, event)
	if err != nil {
		return err
	}
	var e *entry
	size := int64(len(value) + len(authorization))
	grown := size
	if element := s.byName[h.name()]; element != nil {
		e = element.Value.(*entry)
		grown -= e.size
	}
	if grown > 0 && !s.makeRoomLocked(h.User, size, e) {
		return fmt.Errorf("spool event %s: there are %d, of %d bytes: %w", h.event(), s.order.Len(), s.bytes, ErrFull)
	}
	if e == nil {
		e = &entry{number: s.last + 1, name: h.name()}
		s.pushLocked(e, nil)
		s.metrics.added.Inc()
	}
	s.table.Put(key(e.number), value)
	e.size, e.authorization = size, authorization
	s.addBytesLocked(grown)
	return nil
}

const (
	maxUserAgent = 256 // bytes
	maxName      = 253 // bytes, as in an apiserver
	suffix       = 10  // characters that make a generated name unique
)

// complete sets the metadata that an apiserver sets on creation.
func complete(m metav1.Object, namespace string) error {
	if m.GetNamespace() == "" {
		m.SetNamespace(namespace)
	}
	if m.GetNamespace() != namespace || namespace == "" {
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the namespace of the provided object does not match the namespace sent on the request: %q, %q", m.GetNamespace(), namespace))
	}
	if m.GetName() == "" && m.GetGenerateName() != "" {
		prefix := m.GetGenerateName()
		m.SetName(prefix[:min(len(prefix), maxName-suffix)] + rand.String(suffix))
	}
	if m.GetName() == "" || len(m.GetName()) > maxName {
		return apierrors.NewBadRequest("a name of at most 253 characters, or generateName, is required")
	}
	m.SetUID(uuid.NewUUID())
	m.SetCreationTimestamp(metav1.Now())
	m.SetResourceVersion("") // an apiserver refuses to create an object that has one
	m.SetDeletionTimestamp(nil)
	m.SetManagedFields(nil)
	return nil
}

// merge changes an event that the caller has in the spool.
func (s *Spool) merge(r *Request, t wire.TypeMeta) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, missing := r.head(t, r.Name), apierrors.NewNotFound(r.resource(), r.Name)
	element := s.byName[h.name()]
	if element == nil {
		return nil, missing
	}
	old, ok := s.read(element.Value.(*entry))
	if !ok || old.APIVersion != h.APIVersion {
		return nil, missing
	}
	current, err := old.object()
	if err != nil {
		return nil, missing
	}
	next, err := patch.Apply(patch.Request{Method: r.Method, ContentType: r.ContentType, Body: r.Body, Resource: r.resource()}, current)
	if err != nil {
		return nil, err
	}
	return next, s.putLocked(h, r.Authorization, next)
}

func (r *Request) resource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: "events"}
}

// maxEvent is what an apiserver surely takes: etcd refuses 1.5 MiB, with the metadata that an
// apiserver adds.
const maxEvent = 1 << 20 // bytes

func recordOf(h head, event runtime.Object) ([]byte, error) {
	bare, err := convert.ToBare(wire.Protobuf, event)
	if err != nil {
		return nil, err
	}
	if len(bare) > maxEvent {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("event %s has %d bytes, and at most %d can be kept", h.event(), len(bare), maxEvent))
	}
	return json.Marshal(record{h, bare})
}
