package fuzzcache

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/edgehub-io/edgehub/test/oracle"
)

// mark is the annotation that names the write that an object comes from. A dry run has
// one that nobody may ever see.
const mark = "fuzz.edgehub.io/write"

// state is one version of an object, as far as it is compared.
type state struct {
	rev       int64
	namespace string
	name      string
	uid       string
	labels    map[string]string
	write     string
	value     string // empty where only metadata was read
	node      string // of a pod; empty where only metadata was read
	metadata  bool   // only that is known
}

func (s *state) key() string { return s.namespace + "/" + s.name }

func (s *state) String() string {
	if s == nil {
		return "absent"
	}
	return fmt.Sprintf("%s at %d (uid %.8s, labels %v, write %s, value %q)", s.key(), s.rev, s.uid, s.labels, s.write, s.value)
}

// same compares what both know.
func (s *state) same(other *state) bool {
	if s.rev != other.rev || s.uid != other.uid || s.write != other.write || s.key() != other.key() || !maps.Equal(s.labels, other.labels) {
		return false
	}
	return s.metadata || other.metadata || s.value == other.value && s.node == other.node
}

// loose is any object, as JSON.
type loose struct {
	metav1.TypeMeta
	Metadata json.RawMessage
	Items    []json.RawMessage
	Data     map[string]string
	Spec     struct {
		Value, Colour, NodeName string
		Containers              []corev1.Container
	}
}

var errNoObject = errors.New("it is no object")

// decodeState reads an object as etcd, or an apiserver, or a hub writes it. At rev 0 it
// says itself which version it is.
func decodeState(body []byte, rev int64) (*state, error) {
	if bytes.HasPrefix(body, []byte("k8s\x00")) {
		object, err := oracle.Decode(body)
		if err != nil {
			return nil, err
		}
		return stateOf(object, rev)
	}
	var l loose
	if err := json.Unmarshal(body, &l); err != nil {
		return nil, err
	}
	var m metav1.ObjectMeta
	if err := json.Unmarshal(l.Metadata, &m); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	s, err := stateFrom(&m, rev)
	if err != nil {
		return nil, err
	}
	s.metadata = l.Kind == "PartialObjectMetadata"
	s.value, s.node = l.Data["value"]+l.Spec.Value, l.Spec.NodeName
	for i := range l.Spec.Containers {
		s.value += l.Spec.Containers[i].Image
	}
	return s, nil
}

func stateOf(object runtime.Object, rev int64) (*state, error) {
	m, err := meta.Accessor(object)
	if err != nil {
		return nil, errNoObject
	}
	s, err := stateFrom(m, rev)
	if err != nil {
		return nil, err
	}
	switch o := object.(type) {
	case *corev1.ConfigMap:
		s.value = o.Data["value"]
	case *corev1.Pod:
		s.node = o.Spec.NodeName
		for i := range o.Spec.Containers {
			s.value += o.Spec.Containers[i].Image
		}
	case *metav1.PartialObjectMetadata:
		s.metadata = true
	default:
		return nil, fmt.Errorf("%w that is expected: %T", errNoObject, object)
	}
	return s, nil
}

func stateFrom(m metav1.Object, rev int64) (*state, error) {
	if rev == 0 {
		var err error
		if rev, err = strconv.ParseInt(m.GetResourceVersion(), 10, 64); err != nil {
			return nil, fmt.Errorf("version of %s: %w", m.GetName(), err)
		}
	}
	return &state{rev: rev, namespace: m.GetNamespace(), name: m.GetName(), uid: string(m.GetUID()), labels: m.GetLabels(), write: m.GetAnnotations()[mark]}, nil
}

// listing is the body of a LIST.
type listing struct {
	rev      int64
	next     string
	metadata bool // of the items only that
	items    []*state
}

func decodeList(body []byte) (l listing, err error) {
	if bytes.HasPrefix(body, []byte("k8s\x00")) {
		return decodeProtobufList(body)
	}
	var raw loose
	if err := json.Unmarshal(body, &raw); err != nil {
		return l, err
	}
	var about metav1.ListMeta
	if err := json.Unmarshal(raw.Metadata, &about); err != nil {
		return l, fmt.Errorf("metadata of the list: %w", err)
	}
	l.metadata = raw.Kind == "PartialObjectMetadataList"
	for _, item := range raw.Items {
		s, err := decodeState(item, 0)
		if err != nil {
			return l, fmt.Errorf("item: %w", err)
		}
		s.metadata = l.metadata
		l.items = append(l.items, s)
	}
	l.next = about.Continue
	l.rev, err = strconv.ParseInt(about.ResourceVersion, 10, 64)
	return l, err
}

func decodeProtobufList(body []byte) (l listing, err error) {
	object, err := oracle.Decode(body)
	if err != nil {
		return l, err
	}
	about, err := meta.ListAccessor(object)
	if err != nil {
		return l, err
	}
	_, l.metadata = object.(*metav1.PartialObjectMetadataList)
	err = meta.EachListItem(object, func(item runtime.Object) error {
		s, err := stateOf(item, 0)
		l.items = append(l.items, s)
		return err
	})
	if err != nil {
		return l, err
	}
	l.next = about.GetContinue()
	l.rev, err = strconv.ParseInt(about.GetResourceVersion(), 10, 64)
	return l, err
}
