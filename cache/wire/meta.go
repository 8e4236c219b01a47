package wire

import (
	"fmt"
	"iter"
)

// TypeMeta is the type of an object. It is empty for bare objects.
type TypeMeta struct{ APIVersion, Kind string }

// Meta is the metadata of one object. Its slices point into the object's bytes and are valid as
// long as these; strings with JSON escapes are copies. Missing fields are empty.
type Meta struct {
	APIVersion, Kind []byte // of self-describing objects

	Namespace, Name, UID, ResourceVersion []byte

	// Labels and annotations are read on demand: from the whole ObjectMeta in protobuf, from
	// the values of the two keys in JSON.
	encoding            Encoding
	objectMeta          []byte
	labels, annotations []byte
}

// TypeMeta returns a copy of the object's type.
func (m *Meta) TypeMeta() TypeMeta {
	return TypeMeta{APIVersion: string(m.APIVersion), Kind: string(m.Kind)}
}

// Labels yields the labels as they are ordered in the object. It scans the metadata; the slices
// are valid as long as those of m.
func (m *Meta) Labels() iter.Seq2[[]byte, []byte] { return m.entries(m.labels, objectMetaLabels) }

// Annotation returns the value of one annotation: the last if it occurs twice, as in decoders.
func (m *Meta) Annotation(key string) (value []byte, ok bool) {
	for k, v := range m.entries(m.annotations, objectMetaAnnotations) {
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

// Inspect returns the metadata of one object, bare or self-describing. It fails if the object is
// incomplete, and allocates nothing.
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
