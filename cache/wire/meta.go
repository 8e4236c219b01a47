package wire

import (
	"fmt"
	"iter"
)

// TypeMeta is what an object says that it is. Both are empty in bare objects.
type TypeMeta struct{ APIVersion, Kind string }

// Meta is what is known of one object without decoding it. Its slices point into the
// object's bytes and hold as long as these (strings with JSON escapes are copies). What
// the object does not say is empty.
type Meta struct {
	APIVersion, Kind []byte // of self-describing objects

	Namespace, Name, UID, ResourceVersion []byte

	// Where labels and annotations are looked up when somebody asks: the whole
	// ObjectMeta in protobuf, the values of the two keys in JSON.
	encoding            Encoding
	objectMeta          []byte
	labels, annotations []byte
}

// TypeMeta returns the object's type as strings of its own.
func (m *Meta) TypeMeta() TypeMeta {
	return TypeMeta{APIVersion: string(m.APIVersion), Kind: string(m.Kind)}
}

// Labels looks the labels up, in the order in which they are written. It costs a scan of
// the metadata; the slices hold as long as Meta's own.
func (m *Meta) Labels() iter.Seq2[[]byte, []byte] { return m.entries(m.labels, objectMetaLabels) }

// Annotations is like Labels.
func (m *Meta) Annotations() iter.Seq2[[]byte, []byte] {
	return m.entries(m.annotations, objectMetaAnnotations)
}

// Annotation returns the value of one annotation: the last, as decoders do, should it
// occur twice.
func (m *Meta) Annotation(key string) (value []byte, ok bool) {
	for k, v := range m.Annotations() {
		if string(k) == key {
			value, ok = v, true
		}
	}
	return value, ok
}

func (m *Meta) entries(object []byte, field uint64) iter.Seq2[[]byte, []byte] {
	if m.encoding == Protobuf {
		return protoMapEntries(m.objectMeta, field)
	}
	return jsonMapEntries(object)
}

// Inspect returns the metadata of one object, bare or self-describing: a stored item, or
// the body of a GET. It fails if object is not whole, and allocates nothing.
func Inspect(e Encoding, object []byte) (Meta, error) {
	switch e {
	case Protobuf:
		return inspectProto(object)
	case JSON:
		return inspectJSON(object)
	default:
		return Meta{}, fmt.Errorf("inspect object: %w", ErrEncoding)
	}
}
