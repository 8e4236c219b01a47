package cache

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// errNotKept is why there is no answer to what was read, but in a form that is not kept.
var errNotKept = errors.New("this was read only in a form that is not kept, such as the table that kubectl get prints; while the cloud can be reached, read it once with kubectl get -o yaml")

// errOnlyMetadata is why there is no answer to who wants whole objects.
var errOnlyMetadata = errors.New("only the metadata of this was read through this hub")

func notAcceptable(q *query.Query) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: fmt.Sprintf("edgehub: the cloud cannot be reached, and %s is cached in a form that cannot be converted to what the client accepts, %q", q.Resource.GroupResource(), q.Accept),
	}}
}

// get answers with the newest version of the object that the user has seen, from
// whichever view. An older one is no answer, even if only that can be converted.
func (r *Request) get() (*http.Response, error) {
	copies, err := r.answers.views.Seek(r.query)
	if errors.Is(err, view.ErrNeverRead) {
		return nil, r.unknown()
	}
	if err != nil {
		return answerError(r.req, err)
	}
	for _, o := range inAcceptOrder(r.query.Accept) {
		for _, in := range o.from {
			for i := range copies {
				s := source{copies[i].View, o.to}
				if s.view.Repr != in || !s.convertible() {
					continue
				}
				res, failed := r.object(&copies[i], o.to)
				if failed == nil {
					return res, nil
				}
				err = failed // another view may have it undamaged
			}
		}
	}
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(copies, view.Copy.Whole) {
		return answerError(r.req, notAcceptable(r.query))
	}
	return nil, errOnlyMetadata
}

// object answers with one object.
func (r *Request) object(c *view.Copy, to wire.Representation) (*http.Response, error) {
	c.View.Touch(r.answers.now())
	c.View.NoteRead(c.Name)
	limit := pieceSize
	if c.View.Repr != to {
		limit = convertedPieceSize
	}
	if c.Entry.Size > limit {
		return r.largeObject(c, to)
	}
	o, err := c.Object()
	if err != nil {
		return nil, err
	}
	c.View.Give()
	return r.respond(http.StatusOK, r.overlaid(o), to)
}

// respond sends an object in a representation.
func (r *Request) respond(code int, o view.Object, to wire.Representation) (*http.Response, error) {
	body, err := appendObject(nil, o, to)
	if errors.Is(err, convert.ErrUnknownType) {
		return answerError(r.req, notAcceptable(&query.Query{Resource: r.resource(), Accept: to.ContentType()}))
	}
	if err != nil {
		return nil, err
	}
	return answerBytes(r.req, code, to.ContentType(), body), nil
}
