package repeat

import (
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// maxBody bounds a POST and its answer, in bytes. They usually have 2,000.
const maxBody = 64 << 10

// decode reads the body of a POST, or of the answer to one, that is of a type. Its errors do not quote the body, which
// may contain a token.
func decode[T runtime.Object](of wire.TypeMeta, body []byte, contentType string) (T, error) {
	var none T
	if len(body) > maxBody {
		return none, fmt.Errorf("read a %s of %d bytes: %w", of.Kind, len(body), wire.ErrTooLarge)
	}
	object, err := convert.DecodeBody(contentType, body, of)
	if err != nil {
		return none, fmt.Errorf("read a %s: %w", of.Kind, wire.ErrMalformed)
	}
	typed, ok := object.(T)
	if !ok {
		return none, fmt.Errorf("read a %s: it is something else: %w", of.Kind, wire.ErrMalformed)
	}
	typed.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(of.APIVersion, of.Kind))
	return typed, nil
}

// created returns a 201 in an encoding that the client accepts. Its error is convert.ErrNotAcceptable where there is none.
func created(r *Request, object runtime.Object) (*Response, error) {
	contentType, body, err := convert.EncodeBody(r.HTTP.Header.Get("Accept"), object)
	if err != nil {
		return nil, err
	}
	return &Response{Code: http.StatusCreated, Header: http.Header{"Content-Type": {contentType}}, Body: body}, nil
}

// sorted returns the elements of a set in order.
func sorted(set []string) []string {
	set = slices.Clone(set)
	slices.Sort(set)
	return slices.Compact(set)
}
