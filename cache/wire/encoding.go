package wire

import "k8s.io/apimachinery/pkg/runtime"

// Encoding is how objects are written. The zero value stands for all that this package
// cannot read: CBOR, YAML and what is not known.
type Encoding uint8

// The encodings, in the order in which an apiserver prefers them where a client does not.
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

// MediaType is what stands for e in Accept and Content-Type, or nothing.
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
