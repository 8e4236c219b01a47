package wire

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Wire types (https://protobuf.dev/programming-guides/encoding/). Groups, 3 and 4, are refused:
// Kubernetes has none.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

// Tags as encoded: field number << 3 | wire type. All field numbers here are below 16, so a tag
// is one byte.
const (
	unknownTypeMeta        = 1<<3 | wireBytes // runtime.Unknown
	unknownRaw             = 2<<3 | wireBytes
	unknownContentEncoding = 3<<3 | wireBytes
	unknownContentType     = 4<<3 | wireBytes

	typeMetaAPIVersion = 1<<3 | wireBytes // runtime.TypeMeta
	typeMetaKind       = 2<<3 | wireBytes

	objectMetadata = 1<<3 | wireBytes // every object

	objectMetaName            = 1<<3 | wireBytes // metav1.ObjectMeta
	objectMetaNamespace       = 3<<3 | wireBytes
	objectMetaUID             = 5<<3 | wireBytes
	objectMetaResourceVersion = 6<<3 | wireBytes
	objectMetaLabels          = 11<<3 | wireBytes
	objectMetaAnnotations     = 12<<3 | wireBytes

	mapKey   = 1<<3 | wireBytes
	mapValue = 2<<3 | wireBytes

	listMetadata = 1<<3 | wireBytes // every list
	listItems    = 2<<3 | wireBytes

	listMetaSelfLink           = 1<<3 | wireBytes // metav1.ListMeta
	listMetaResourceVersion    = 2<<3 | wireBytes
	listMetaContinue           = 3<<3 | wireBytes
	listMetaRemainingItemCount = 4<<3 | wireVarint

	watchEventType   = 1<<3 | wireBytes // metav1.WatchEvent
	watchEventObject = 2<<3 | wireBytes

	rawExtensionRaw = 1<<3 | wireBytes // runtime.RawExtension

	statusCode = 6<<3 | wireVarint // metav1.Status
)

// fields walks the fields of one message.
//
//	for f := (fields{rest: message}); f.next(); { … }
//
// err is set if the message is invalid.
type fields struct {
	rest []byte
	err  error

	tag    uint64
	value  []byte // of a field of wireBytes
	number uint64 // of a varint
}

// next goes to the next field, if there is one.
func (f *fields) next() bool {
	if len(f.rest) == 0 || f.err != nil {
		return false
	}
	var n int
	if f.tag, n = varint(f.rest); n <= 0 || f.tag>>3 == 0 {
		return f.fail("tag", n)
	}
	f.rest = f.rest[n:]
	switch f.tag & 7 {
	case wireBytes:
		length, n := varint(f.rest)
		if n <= 0 {
			return f.fail("length", n)
		}
		if length > uint64(len(f.rest)-n) {
			return f.fail("value", 0)
		}
		f.value, f.rest = f.rest[n:n+int(length)], f.rest[n+int(length):]
	case wireVarint:
		if f.number, n = varint(f.rest); n <= 0 {
			return f.fail("number", n)
		}
		f.rest = f.rest[n:]
	case wireFixed64, wireFixed32:
		n = 4
		if f.tag&7 == wireFixed64 {
			n = 8
		}
		if len(f.rest) < n {
			return f.fail("number", 0)
		}
		f.rest = f.rest[n:]
	default:
		return f.fail("wire type", -1)
	}
	return true
}

// fail sets err. n is what varint returned.
func (f *fields) fail(what string, n int) bool {
	reason := ErrMalformed
	if n == 0 {
		reason = ErrTruncated
	}
	f.err = fmt.Errorf("read %s of protobuf field %d: %w", what, f.tag>>3, reason)
	return false
}

// varint is binary.Uvarint, faster for one byte. n is 0 if b is too short, and negative if the
// number is too long.
func varint(b []byte) (v uint64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return binary.Uvarint(b)
}

// varintSize is the length of v as a varint.
func varintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// bytesFieldSize is the length of a field with a tag of one byte and n bytes of value.
func bytesFieldSize(n int) int { return 1 + varintSize(uint64(n)) + n }

// appendBytesHeader appends what precedes the n bytes of a field's value.
func appendBytesHeader(dst []byte, tag byte, n int) []byte {
	return binary.AppendUvarint(append(dst, tag), uint64(n))
}

func appendBytesField[T string | []byte](dst []byte, tag byte, value T) []byte {
	return append(appendBytesHeader(dst, tag, len(value)), value...)
}
