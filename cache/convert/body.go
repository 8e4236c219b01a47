package convert

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// DecodeBody decodes the body of a request. A body without a Content-Type is JSON, and
// one in JSON that does not say what it is has the type expected, as with an apiserver.
// What comes may be of another type than expected: that is the caller's to see.
//
// Errors are ErrMediaType, ErrUnknownType, or those of bytes that are no object.
func DecodeBody(contentType string, body []byte, expected wire.TypeMeta) (runtime.Object, error) {
	e := wire.JSON
	if contentType != "" {
		if e = negotiation.ParseContentType(contentType).Encoding; e == 0 {
			return nil, fmt.Errorf("decode a body of type %.60q: %w", contentType, ErrMediaType)
		}
	}
	t, bare, err := take(e, body)
	if err != nil {
		return nil, fmt.Errorf("decode the body of a request: %w", err)
	}
	if t.Kind == "" {
		t.Kind = expected.Kind
	}
	if t.APIVersion == "" {
		t.APIVersion = expected.APIVersion
	}
	return FromBare(e, t, bare)
}

// EncodeBody encodes the body of an answer in the first encoding that accept allows;
// without an Accept header that is JSON. The object's TypeMeta must be set.
func EncodeBody(accept string, object runtime.Object) (contentType string, body []byte, err error) {
	r, ok := negotiation.Select(accept, func(r negotiation.Representation) bool { return r.Metadata == "" })
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

// take takes a self-describing object apart. In JSON, bare is the whole of it where it
// is not written as a type of Go is.
func take(e wire.Encoding, object []byte) (t wire.TypeMeta, bare []byte, err error) {
	m, err := wire.Inspect(e, object)
	if err != nil {
		return wire.TypeMeta{}, nil, err
	}
	bare, err = wire.AppendBare(nil, e, object)
	return m.TypeMeta(), bare, err
}
