package wire

import (
	"bytes"
	"fmt"
	"iter"
)

// protoPrefix is the prefix of every self-describing object, from apimachinery's protobuf
// serializer. No bare message begins with it: 'k' would begin a group.
const protoPrefix = "k8s\x00"

// unwrapProto returns the parts of a self-describing object.
func unwrapProto(object []byte) (apiVersion, kind, raw []byte, err error) {
	if !bytes.HasPrefix(object, []byte(protoPrefix)) {
		return nil, nil, nil, fmt.Errorf("unwrap protobuf object: no k8s prefix: %w", ErrMalformed)
	}
	var u unknown
	f := fields{rest: object[len(protoPrefix):]}
	for f.next() {
		if err := u.field(f.tag, f.value); err != nil {
			return nil, nil, nil, err
		}
		if f.tag == unknownRaw {
			raw = f.value
		}
	}
	if f.err != nil {
		return nil, nil, nil, fmt.Errorf("unwrap protobuf object: %w", f.err)
	}
	if !u.whole() {
		return nil, nil, nil, fmt.Errorf("unwrap protobuf object: %w", ErrTruncated)
	}
	return u.apiVersion, u.kind, raw, nil
}

// unknown is a runtime.Unknown that is read field by field.
type unknown struct {
	apiVersion, kind []byte
	seen             uint8 // bit n: field n
}

// field takes the next field. It ignores the value of raw.
func (u *unknown) field(tag uint64, value []byte) error {
	switch tag {
	case unknownTypeMeta, unknownRaw, unknownContentEncoding, unknownContentType:
	default:
		return fmt.Errorf("read runtime.Unknown: it has a field with tag %d: %w", tag, ErrMalformed)
	}
	bit := uint8(1) << (tag >> 3)
	if u.seen&bit != 0 {
		return fmt.Errorf("read runtime.Unknown: field %d occurs twice: %w", tag>>3, ErrMalformed)
	}
	u.seen |= bit
	switch {
	case tag == unknownTypeMeta:
		return u.typeMeta(value)
	case tag != unknownRaw && len(value) > 0: // gzip, or another encoding
		return fmt.Errorf("read runtime.Unknown: its content is %.40q: %w", value, ErrMalformed)
	}
	return nil
}

func (u *unknown) typeMeta(message []byte) error {
	f := fields{rest: message}
	for f.next() {
		switch f.tag {
		case typeMetaAPIVersion:
			u.apiVersion = f.value
		case typeMetaKind:
			u.kind = f.value
		}
	}
	return f.err
}

// whole reports whether all fields have come. Kubernetes writes all four, also if they are
// empty.
func (u *unknown) whole() bool {
	const all = 1<<1 | 1<<2 | 1<<3 | 1<<4
	return u.seen == all
}

func inspectProto(object []byte) (m Meta, err error) {
	raw := object
	if bytes.HasPrefix(object, []byte(protoPrefix)) {
		if m.APIVersion, m.Kind, raw, err = unwrapProto(object); err != nil {
			return Meta{}, err
		}
	}
	if err := m.readProto(raw); err != nil {
		return Meta{}, err
	}
	return m, nil
}

// readProto reads the ObjectMeta of a bare message, and checks its other fields.
func (m *Meta) readProto(message []byte) error {
	m.encoding = Protobuf
	seen := false
	f := fields{rest: message}
	for f.next() {
		if f.tag != objectMetadata {
			continue
		}
		if seen { // decoders would merge the two
			return fmt.Errorf("inspect protobuf object: two ObjectMeta: %w", ErrMalformed)
		}
		seen = true
		if err := m.readProtoObjectMeta(f.value); err != nil {
			return fmt.Errorf("inspect ObjectMeta: %w", err)
		}
	}
	if f.err != nil {
		return fmt.Errorf("inspect protobuf object: %w", f.err)
	}
	return nil
}

func (m *Meta) readProtoObjectMeta(message []byte) error {
	m.objectMeta = message
	f := fields{rest: message}
	for f.next() {
		switch f.tag {
		case objectMetaName:
			m.Name = f.value
		case objectMetaNamespace:
			m.Namespace = f.value
		case objectMetaUID:
			m.UID = f.value
		case objectMetaResourceVersion:
			m.ResourceVersion = f.value
		}
	}
	return f.err
}

// protoMapEntries yields the entries of a map field.
func protoMapEntries(message []byte, tag uint64) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for f := (fields{rest: message}); f.next(); {
			if f.tag != tag {
				continue
			}
			var key, value []byte
			for entry := (fields{rest: f.value}); entry.next(); {
				switch entry.tag {
				case mapKey:
					key = entry.value
				case mapValue:
					value = entry.value
				}
			}
			if !yield(key, value) {
				return
			}
		}
	}
}

// appendProtoObject appends a bare message as a self-describing object.
func appendProtoObject(dst []byte, t TypeMeta, bare []byte) []byte {
	dst = appendUnknownHeader(dst, t, len(bare))
	dst = append(dst, bare...)
	return append(dst, unknownTrailer...)
}

// appendUnknownHeader appends what precedes the n bytes of raw.
func appendUnknownHeader(dst []byte, t TypeMeta, n int) []byte {
	dst = append(dst, protoPrefix...)
	dst = appendBytesHeader(dst, unknownTypeMeta, bytesFieldSize(len(t.APIVersion))+bytesFieldSize(len(t.Kind)))
	dst = appendBytesField(dst, typeMetaAPIVersion, t.APIVersion)
	dst = appendBytesField(dst, typeMetaKind, t.Kind)
	return appendBytesHeader(dst, unknownRaw, n)
}

// unknownTrailer follows raw: contentEncoding and contentType, both empty.
const unknownTrailer = "\x1a\x00\x22\x00"

func unknownHeaderSize(t TypeMeta, n int) int {
	typeMeta := bytesFieldSize(len(t.APIVersion)) + bytesFieldSize(len(t.Kind))
	return len(protoPrefix) + bytesFieldSize(typeMeta) + bytesFieldSize(n) - n
}
