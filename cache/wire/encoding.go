package wire

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
)

// Encoding is how objects are written. The zero value stands for any encoding that this
// package cannot read, such as CBOR and YAML.
type Encoding uint8

// The encodings, in the order in which an apiserver prefers them.
const (
	JSON Encoding = iota + 1
	Protobuf
)

// String is "json", "protobuf" or "unknown".
func (e Encoding) String() string {
	switch e {
	case JSON:
		return "json"
	case Protobuf:
		return "protobuf"
	default:
		return "unknown"
	}
}

// MediaType is e in Accept and Content-Type headers, or empty.
func (e Encoding) MediaType() string {
	switch e {
	case JSON:
		return runtime.ContentTypeJSON
	case Protobuf:
		return runtime.ContentTypeProtobuf
	default:
		return ""
	}
}

// Errors to branch on. A returned error wraps one of them and describes what was found where.
var (
	// ErrTruncated is returned when the input ends within a value.
	ErrTruncated = errors.New("cut short")

	// ErrMalformed is returned when bytes are invalid in their encoding, or two readers could
	// understand them differently.
	ErrMalformed = errors.New("malformed")

	// ErrTooLarge is returned when an item, a frame or the nesting exceeds its limit.
	ErrTooLarge = errors.New("too large")

	// ErrNotList is returned when a body is valid, but not a list that could be written again
	// from its items.
	ErrNotList = errors.New("not a list of objects")

	// ErrEncoding is returned for an encoding that is neither protobuf nor JSON.
	ErrEncoding = errors.New("neither protobuf nor JSON")
)
