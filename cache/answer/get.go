package answer

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/derived"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// NotAcceptable returns the error of an apiserver for a client that accepts none of the available
// representations.
func NotAcceptable(q *query.Query) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: fmt.Sprintf("edgehub: the cloud cannot be reached, and %s is cached in a form that cannot be converted to what the client accepts, %q", q.Resource.GroupResource(), q.Accept),
	}}
}

// Get answers with the newest version of the object that the user has seen, from any view. An
// older one is no answer, even if only the older one can be converted.
func (r *Request) Get() (*http.Response, error) {
	copies, err := r.Answers.Views.Seek(r.Query)
	if err != nil {
		return ErrorResponse(r.HTTP, err)
	}
	for _, to := range inAcceptOrder(r.Query.Accept) {
		for _, c := range inOrderOfUse(copies, to) {
			res, failed := r.object(&c, to)
			if failed == nil {
				return res, nil
			}
			err = failed // another view may have an undamaged copy
		}
	}
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(copies, view.Copy.Whole) {
		return ErrorResponse(r.HTTP, NotAcceptable(r.Query))
	}
	return nil, derived.ErrOnlyMetadata
}

// inOrderOfUse returns the copies from which an answer can be made, those first that need not be converted.
func inOrderOfUse(copies []view.Copy, to wire.Representation) []view.Copy {
	usable := slices.DeleteFunc(slices.Clone(copies), func(c view.Copy) bool {
		return !c.Whole() && c.Repr.Metadata != to.Metadata || !convertible(c.Type, c.Repr, to)
	})
	rank := func(c view.Copy) int {
		switch {
		case c.Repr == to:
			return 0
		case c.Repr.Metadata == to.Metadata:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(usable, func(a, b view.Copy) int { return cmp.Compare(rank(a), rank(b)) })
	return usable
}

// object answers with one object.
func (r *Request) object(c *view.Copy, to wire.Representation) (*http.Response, error) {
	c.Touch()
	limit := pieceSize
	if c.Repr != to {
		limit = convertedPieceSize
	}
	if c.Size() > limit {
		return r.largeObject(c, to)
	}
	o, err := c.Object()
	if err != nil {
		return nil, err
	}
	return r.Respond(http.StatusOK, r.derived(o, to), to)
}

// derived returns what the user reads instead of a copy of an object. Metadata is shown as it is cached, as in lists and
// watches.
func (r *Request) derived(o view.Object, to wire.Representation) view.Object {
	if to.Metadata == "" {
		o, _ = r.Answers.Derived.Get(r.Query, o)
	}
	return o
}

// Respond answers with an object in a representation.
func (r *Request) Respond(code int, o view.Object, to wire.Representation) (*http.Response, error) {
	body, err := AppendObject(nil, o, to)
	if err != nil {
		return r.conversionFailed(to, err)
	}
	return BytesResponse(r.HTTP, code, to.ContentType(), body), nil
}

// conversionFailed answers 406 if the hub does not know the type of the object.
func (r *Request) conversionFailed(to wire.Representation, err error) (*http.Response, error) {
	if errors.Is(err, convert.ErrUnknownType) {
		err = NotAcceptable(&query.Query{Resource: r.Resource, Accept: to.ContentType()})
	}
	return ErrorResponse(r.HTTP, err)
}
