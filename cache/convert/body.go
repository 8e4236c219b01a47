package convert

import (
	"cmp"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// Errors to branch on. Invalid bytes are wire.ErrMalformed, wire.ErrTruncated or
// wire.ErrTooLarge.
var (
	// ErrUnknownType is returned for types that this program does not know, such as custom
	// resources: 406, for a client that asks for another encoding.
	ErrUnknownType = errors.New("not a built-in type that this hub knows")

	// ErrNotAcceptable is returned if an Accept header allows neither protobuf nor JSON: 406.
	ErrNotAcceptable = errors.New("neither protobuf nor JSON is accepted")

	// ErrMediaType is returned for bodies that are neither protobuf nor JSON: 415.
	ErrMediaType = errors.New("the body is neither protobuf nor JSON")
)

// DecodeBody decodes the body of a request. Like an apiserver, it reads a body without a
// Content-Type as JSON, and JSON without a type as the expected one. The caller must check whether
// the result has the expected type.
//
// Errors are ErrMediaType, ErrUnknownType, or those of invalid bytes.
func DecodeBody(contentType string, body []byte, expected wire.TypeMeta) (runtime.Object, error) {
	e := wire.JSON
	if contentType != "" {
		if e = wire.ParseContentType(contentType).Encoding; e == 0 {
			return nil, fmt.Errorf("decode a body of type %.60q: %w", contentType, ErrMediaType)
		}
	}
	m, err := wire.Inspect(e, body)
	if err != nil {
		return nil, fmt.Errorf("decode the body of a request: %w", err)
	}
	bare, err := wire.AppendBare(nil, e, body)
	if err != nil {
		return nil, fmt.Errorf("decode the body of a request: %w", err)
	}
	t := wire.TypeMeta{
		APIVersion: cmp.Or(string(m.APIVersion), expected.APIVersion),
		Kind:       cmp.Or(string(m.Kind), expected.Kind),
	}
	return FromBare(e, t, bare)
}

// EncodeBody encodes the body of an answer in the first encoding that accept allows: JSON if
// accept is empty. The object's TypeMeta must be set.
func EncodeBody(accept string, object runtime.Object) (contentType string, body []byte, err error) {
	r, ok := wire.Negotiate(accept, func(r wire.Representation) bool { return r.Metadata == "" })
	if !ok {
		return "", nil, fmt.Errorf("encode an answer: %w", ErrNotAcceptable)
	}
	bare, err := ToBare(r.Encoding, object)
	if err != nil {
		return "", nil, err
	}
	var t wire.TypeMeta
	t.APIVersion, t.Kind = object.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	return r.ContentType(), wire.AppendBody(nil, r.Encoding, t, bare), nil
}
