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

// offline answers a request that could not be sent. cause is why; it is
// returned, wrapped, where there is no answer.
func (x *exchange) offline(cause error) (*http.Response, error) {
	res, err := x.answer()
	x.cache.metrics.answered(x.info, err)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, cause)
	}
	return res, nil
}

func (x *exchange) answer() (*http.Response, error) {
	if err := x.allowed(); err != nil {
		return nil, err
	}
	if x.query == nil {
		return x.cache.writes.offline(x)
	}
	switch x.query.Verb {
	case "get":
		return x.get()
	case "list":
		return x.list()
	default:
		return x.watch()
	}
}

func notAcceptable(q *query.Query) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: fmt.Sprintf("edgehub: the cloud cannot be reached, and %s is cached in a form that cannot be converted to what the client accepts, %q", q.Resource.GroupResource(), q.Accept),
	}}
}

// status answers with an error if that is what an apiserver would say.
func (x *exchange) status(err error) (*http.Response, error) {
	if res, ok := answerError(x.req, err); ok {
		return res, nil
	}
	return nil, err
}

// get answers with the newest version of the object that the user has seen, from
// whichever view. An older one is no answer, even if only that can be converted.
func (x *exchange) get() (*http.Response, error) {
	copies, err := x.cache.views.Seek(x.query)
	if errors.Is(err, view.ErrNeverRead) {
		return nil, x.unknown()
	}
	if err != nil {
		return x.status(err)
	}
	for _, o := range inAcceptOrder(x.query.Accept) {
		for _, in := range o.from {
			for i := range copies {
				s := source{copies[i].View, o.to}
				if s.view.Repr != in || !s.convertible() {
					continue
				}
				res, failed := x.object(&copies[i], o.to)
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
		return x.status(notAcceptable(x.query))
	}
	return nil, errOnlyMetadata
}

// object answers with one object.
func (x *exchange) object(c *view.Copy, to wire.Representation) (*http.Response, error) {
	c.View.Touch(x.cache.now())
	c.View.NoteRead(c.Name)
	limit := pieceSize
	if c.View.Repr != to {
		limit = convertedPieceSize
	}
	if c.Entry.Size > limit {
		return x.largeObject(c, to)
	}
	o, err := c.Object()
	if err != nil {
		return nil, err
	}
	c.View.Give()
	return x.respond(http.StatusOK, x.cache.writes.overlaid(x, o), to)
}

// respond sends an object in the representation r.
func (x *exchange) respond(code int, o view.Object, r wire.Representation) (*http.Response, error) {
	body, err := appendObject(nil, o, r)
	if errors.Is(err, convert.ErrUnknownType) {
		return x.status(notAcceptable(&query.Query{Resource: x.resource(), Accept: r.ContentType()}))
	}
	if err != nil {
		return nil, err
	}
	return answerBytes(x.req, code, r.ContentType(), body), nil
}
