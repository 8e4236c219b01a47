package fuzzcache

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/edgehub-io/edgehub/test/internal/fakeapiserver"
)

// mark is the annotation that names the write that an object comes from. A dry run has
// one that nobody may ever see.
const mark = "fuzz.edgehub.io/write"

// state is one version of an object: what selectors look at, and sums of all the rest.
type state struct {
	rev       int64
	namespace string
	name      string
	uid       string
	labels    map[string]string
	write     string
	about     sum  // of the metadata, but for the resourceVersion
	ended     bool // it is about to be removed: whatever is written to it removes it
	metadata  bool // only that is known
	table     bool // it was a row of a Table

	// The rest is empty where only metadata is known.
	node    string // of a pod
	status  status // of a pod
	content sum    // of everything but metadata, status, and the colour of a widget
	colour  string // of a widget
}

// status is what a pod's status is compared by.
type status struct {
	phase   string
	message string // names the write that it comes from
	whole   sum
}

// sum stands for a part of an object, decoded and encoded again, so that it is the same in
// every representation.
type sum [16]byte

func sumOf(part any) sum {
	body, err := json.Marshal(part)
	if err != nil {
		panic(err) // it was decoded from JSON or protobuf
	}
	whole := sha256.Sum256(body)
	return sum(whole[:16])
}

func (s *state) key() string { return s.namespace + "/" + s.name }

func (s *state) String() string {
	if s == nil {
		return "absent"
	}
	text := fmt.Sprintf("%s at %d (uid %.8s, labels %v, write %s, metadata %.4x", s.key(), s.rev, s.uid, s.labels, s.write, s.about)
	if !s.metadata {
		text += fmt.Sprintf(", content %.4x", s.content)
	}
	if s.colour != "" {
		text += fmt.Sprintf(", colour %q", s.colour)
	}
	if s.status.phase != "" {
		text += fmt.Sprintf(", status %.4x %s %q", s.status.whole, s.status.phase, s.status.message)
	}
	return text + ")"
}

// same compares all that both know.
func (s *state) same(other *state) bool {
	return s.sameButStatus(other) && (s.metadata || other.metadata || s.status == other.status)
}

// sameButStatus is same for everything but the status of a pod.
func (s *state) sameButStatus(other *state) bool {
	if s.rev != other.rev || s.uid != other.uid || s.write != other.write || s.key() != other.key() || !maps.Equal(s.labels, other.labels) || s.about != other.about {
		return false
	}
	return s.metadata || other.metadata || s.content == other.content && s.node == other.node && sameColour(s.colour, other.colour)
}

// sameColour compares colours of widgets. One that is stored without a colour is read with
// the default that an apiserver knew at the time.
func sameColour(a, b string) bool {
	return a == b || a == "" && slices.Contains(colours(), b) || b == "" && slices.Contains(colours(), a)
}

// loose is any object, as JSON.
type loose struct {
	metav1.TypeMeta
	Metadata json.RawMessage
	Items    []json.RawMessage
	Rows     []struct{ Object json.RawMessage }
}

var errNoObject = errors.New("it is no object")

// decodeState reads an object as etcd, or an apiserver, or a hub writes it. At rev 0 it
// says itself which version it is.
func decodeState(body []byte, rev int64) (*state, error) {
	if bytes.HasPrefix(body, []byte("k8s\x00")) {
		object, err := fakeapiserver.Decode(body)
		if err != nil {
			return nil, err
		}
		return stateOf(object, rev)
	}
	var l loose
	if err := json.Unmarshal(body, &l); err != nil {
		return nil, err
	}
	return decodeJSON(body, l.Kind, rev)
}

// decodeJSON reads an object of a kind, which an item of a list does not name itself.
func decodeJSON(body []byte, kind string, rev int64) (*state, error) {
	switch kind {
	case "Pod":
		return decodeInto(body, rev, &corev1.Pod{})
	case "Secret":
		return decodeInto(body, rev, &corev1.Secret{})
	case "ConfigMap":
		return decodeInto(body, rev, &corev1.ConfigMap{})
	case "PartialObjectMetadata":
		return decodeInto(body, rev, &metav1.PartialObjectMetadata{})
	case "Widget":
		return decodeWidget(body, rev)
	case "Table":
		return decodeRow(body, rev)
	}
	return nil, fmt.Errorf("%w that is expected: %q", errNoObject, kind)
}

func decodeInto(body []byte, rev int64, object runtime.Object) (*state, error) {
	if err := json.Unmarshal(body, object); err != nil {
		return nil, err
	}
	return stateOf(object, rev)
}

// decodeRow reads a Table of one row.
func decodeRow(body []byte, rev int64) (*state, error) {
	var l loose
	if err := json.Unmarshal(body, &l); err != nil {
		return nil, err
	}
	if len(l.Rows) != 1 {
		return nil, fmt.Errorf("a table of %d rows about one object", len(l.Rows))
	}
	s, err := decodeState(l.Rows[0].Object, rev)
	if err == nil {
		s.table = true
	}
	return s, err
}

func decodeWidget(body []byte, rev int64) (*state, error) {
	var widget struct{ Metadata metav1.ObjectMeta }
	var rest map[string]any
	if err := errors.Join(json.Unmarshal(body, &widget), json.Unmarshal(body, &rest)); err != nil {
		return nil, err
	}
	s, err := stateFrom(widget.Metadata, rev)
	if err != nil {
		return nil, err
	}
	delete(rest, "metadata")
	delete(rest, "kind") // not every item of a list has them
	delete(rest, "apiVersion")
	if spec, ok := rest["spec"].(map[string]any); ok {
		s.colour, _ = spec["colour"].(string)
		delete(spec, "colour")
	}
	s.content = sumOf(rest)
	return s, nil
}

func stateOf(object runtime.Object, rev int64) (*state, error) {
	switch o := object.(type) {
	case *corev1.ConfigMap:
		rest := *o
		rest.TypeMeta, rest.ObjectMeta = metav1.TypeMeta{}, metav1.ObjectMeta{}
		return stateWith(o.ObjectMeta, rev, rest)
	case *corev1.Secret:
		rest := *o
		rest.TypeMeta, rest.ObjectMeta = metav1.TypeMeta{}, metav1.ObjectMeta{}
		return stateWith(o.ObjectMeta, rev, rest)
	case *corev1.Pod:
		return stateOfPod(o, rev)
	case *metav1.PartialObjectMetadata:
		s, err := stateFrom(o.ObjectMeta, rev)
		if err == nil {
			s.metadata = true
		}
		return s, err
	}
	return nil, fmt.Errorf("%w that is expected: %T", errNoObject, object)
}

// stateWith is that of an object whose metadata and content are given.
func stateWith(about metav1.ObjectMeta, rev int64, content any) (*state, error) {
	s, err := stateFrom(about, rev)
	if err == nil {
		s.content = sumOf(content)
	}
	return s, err
}

func stateOfPod(o *corev1.Pod, rev int64) (*state, error) {
	s, err := stateWith(o.ObjectMeta, rev, o.Spec)
	if err != nil {
		return nil, err
	}
	s.node = o.Spec.NodeName
	s.status = status{string(o.Status.Phase), o.Status.Message, sumOf(o.Status)}
	return s, nil
}

func stateFrom(m metav1.ObjectMeta, rev int64) (*state, error) {
	if rev == 0 {
		var err error
		if rev, err = strconv.ParseInt(m.ResourceVersion, 10, 64); err != nil {
			return nil, fmt.Errorf("version of %s: %w", m.Name, err)
		}
	}
	m.ResourceVersion = ""
	grace := m.DeletionGracePeriodSeconds
	return &state{
		ended: m.DeletionTimestamp != nil && len(m.Finalizers) == 0 && (grace == nil || *grace == 0),
		rev:   rev, namespace: m.Namespace, name: m.Name, uid: string(m.UID),
		labels: m.Labels, write: m.Annotations[mark], about: sumOf(m),
	}, nil
}

// listing is the body of a LIST.
type listing struct {
	rev      int64
	next     string
	metadata bool // of the items only that
	table    bool
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
	kind := itemKind(raw.Kind)
	l.metadata, l.table = kind == "PartialObjectMetadata", raw.Kind == "Table"
	for _, row := range raw.Rows {
		raw.Items = append(raw.Items, row.Object)
	}
	for _, item := range raw.Items {
		s, err := decodeJSON(item, kind, 0)
		if err != nil {
			return l, fmt.Errorf("item: %w", err)
		}
		s.table = l.table
		l.items = append(l.items, s)
	}
	l.next = about.Continue
	l.rev, err = strconv.ParseInt(about.ResourceVersion, 10, 64)
	return l, err
}

// itemKind is the kind of the items of a list.
func itemKind(list string) string {
	if list == "Table" {
		return "PartialObjectMetadata"
	}
	return strings.TrimSuffix(list, "List")
}

func decodeProtobufList(body []byte) (l listing, err error) {
	object, err := fakeapiserver.Decode(body)
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
