package spool

import (
	"cmp"
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
	Node            bool   // the caller is the node
	User            string // the caller
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
// apierrors.APIStatus: 404 for an event that is not in the spool, 409 for a POST of one that is,
// and those for invalid requests.
func (s *Spool) Add(r Request) (Answer, error) {
	t := wire.TypeMeta{APIVersion: schema.GroupVersion{Group: r.Group, Version: r.Version}.String(), Kind: "Event"}
	if t.APIVersion != corev1.SchemeGroupVersion.String() && t.APIVersion != eventsv1.SchemeGroupVersion.String() {
		return Answer{}, fmt.Errorf("spool an event of %s: %w", t.APIVersion, patch.ErrUnsupported)
	}
	if !r.Node && r.Authorization == "" {
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

// create spools a new event.
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
	h := head{
		owner:      owner{Node: r.Node, User: r.User, authorization: r.Authorization},
		APIVersion: t.APIVersion,
		Namespace:  m.GetNamespace(),
		Name:       m.GetName(),
		UserAgent:  r.UserAgent[:min(len(r.UserAgent), maxUserAgent)],
	}
	value, err := recordOf(h, event)
	if err != nil {
		return nil, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byName[h.name()] != nil {
		return nil, apierrors.NewAlreadyExists(r.resource(), h.Name)
	}
	size := h.size(value)
	if !s.makeRoomLocked(h.owner, size, nil) {
		return nil, fmt.Errorf("spool event %s: there are %d, of %d bytes: %w", h.name(), s.order.Len(), s.bytes, ErrFull)
	}
	e := &entry{number: s.last + 1, name: h.name(), size: size, owner: h.owner}
	s.table.Put(key(e.number), value)
	s.push(e)
	s.metrics.added.Inc()
	return event, nil
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

// merge changes an event in the spool.
func (s *Spool) merge(r *Request, t wire.TypeMeta) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	missing := apierrors.NewNotFound(r.resource(), r.Name)
	element := s.byName[r.Namespace+"/"+r.Name]
	if element == nil {
		return nil, missing
	}
	e := element.Value.(*entry)
	value, ok := s.table.Get(key(e.number))
	if !ok {
		return nil, missing
	}
	old, err := parse(value)
	if err != nil || old.APIVersion != t.APIVersion || old.Node != r.Node || old.User != r.User {
		return nil, missing // nobody changes the event of another caller
	}
	current, err := convert.FromBare(wire.Protobuf, t, old.bare)
	if err != nil {
		return nil, missing
	}
	next, err := patch.Apply(patch.Request{Method: r.Method, ContentType: r.ContentType, Body: r.Body, Resource: r.resource()}, current)
	if err != nil {
		return nil, err
	}
	value, err = recordOf(old.head, next)
	if err != nil {
		return nil, err
	}
	changed := e.owner
	changed.authorization = cmp.Or(r.Authorization, e.owner.authorization) // the newest is good for longest
	grown := changed.size(value) - e.size
	if grown > 0 && !s.makeRoomLocked(e.owner, e.size+grown, e) {
		return nil, fmt.Errorf("change spooled event %s: there are %d bytes: %w", e.name, s.bytes, ErrFull)
	}
	s.table.Put(key(e.number), value)
	e.size += grown
	s.addBytes(grown)
	e.owner = changed
	return next, nil
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
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("event %s has %d bytes, and at most %d can be kept", h.name(), len(bare), maxEvent))
	}
	r := record{head: h, bare: bare}
	return r.bytes()
}
