package cache

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/answer"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/tee"
	"github.com/edgehub-io/edgehub/cache/view"
)

// exchange is one request with its user and query.
type exchange struct {
	cache  *Cache
	req    *http.Request
	params query.Params // of its URL
	info   *request.RequestInfo
	who    caller
	query  *query.Query // nil if the answer is not cached in a view

	moment view.Moment // when it was sent
}

// RoundTrip sends a request upstream and caches the answer. If no apiserver can be reached, it
// answers from the cache.
func (c *Cache) RoundTrip(r *http.Request) (*http.Response, error) {
	info, _ := request.RequestInfoFrom(r.Context())
	who, ok := c.callerOf(r)
	if !ok || info == nil || !query.Nameable(info) {
		return c.up.RoundTrip(r)
	}
	p := query.ParamsOf(r)
	x := &exchange{cache: c, req: r, params: p, info: info, who: who, query: query.Of(r, p, info, who.user)}
	x.begin()
	if res := x.atStart(); res != nil {
		return res, nil
	}
	if err := x.listFirst(); err != nil {
		return answer.ErrorResponse(r, err)
	}
	res, err := c.up.RoundTrip(r)
	if err == nil {
		x.online(res)
		return res, nil
	}
	if r.Context().Err() != nil || !c.opts.Unreachable(err) {
		return nil, err
	}
	return x.offline(err)
}

// offline answers a request that could not be sent. If there is no answer, it returns cause,
// wrapped.
func (x *exchange) offline(cause error) (*http.Response, error) {
	res, err := x.answer()
	x.cache.metrics.answered(x.info, err)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, cause)
	}
	return res, nil
}

func (x *exchange) answer() (*http.Response, error) {
	if why := x.cache.opts.Withheld(); why != "" {
		return nil, errors.New(why)
	}
	if err := x.allowed(); err != nil {
		return nil, err
	}
	if x.query == nil {
		return x.cache.writes.offline(x)
	}
	switch x.query.Verb {
	case "get":
		return x.ask().Get()
	case "list":
		return x.ask().List()
	default:
		return x.cache.watches.Answer(x.ask())
	}
}

// ask returns the exchange as a request to package answer.
func (x *exchange) ask() *answer.Request {
	return &answer.Request{Answers: x.cache.offline, HTTP: x.req, Resource: x.resource(), Query: x.query}
}

// begin notes what is known, before the request is sent. A consistent answer is not older, unless the apiserver's store was
// restored from a backup.
func (x *exchange) begin() {
	if !x.info.IsResourceRequest {
		return
	}
	q := x.query
	if q == nil {
		q = x.written()
	}
	if x.who.user == "" {
		q = nil
	}
	x.moment = x.cache.views.Moment(query.UserResource{User: x.who.user, Resource: x.resource()}, q)
}

func (x *exchange) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: x.info.APIGroup, Version: x.info.APIVersion, Resource: x.info.Resource}
}

// written returns a query for the object of a write, or nil. There is none for a dry run,
// whose answer shows an object that does not exist.
func (x *exchange) written() *query.Query {
	info := x.info
	if !info.IsResourceRequest || info.Name == "" || info.Subresource != "" && info.Subresource != "status" {
		return nil
	}
	if x.isDryRun() {
		return nil
	}
	return x.named()
}

// named returns a query for the object in the path of a write. The name is empty for a create.
func (x *exchange) named() *query.Query {
	q := &query.Query{User: x.who.user, Verb: "get", Name: x.info.Name, Resource: x.resource(), Accept: x.req.Header.Get("Accept")}
	if x.info.Resource != "namespaces" {
		q.Namespace = x.info.Namespace
	}
	return q
}

// body returns the request's body, which may have been sent already.
func (x *exchange) body() ([]byte, error) {
	if x.req.Body == nil || x.req.Body == http.NoBody {
		return nil, nil
	}
	if x.req.GetBody == nil {
		return nil, errWrite
	}
	again, err := x.req.GetBody()
	if err != nil {
		return nil, err
	}
	defer again.Close()
	return io.ReadAll(again)
}

// take calls fn with the whole body of an answer, uncompressed, before the client gets its end.
func (x *exchange) take(res *http.Response, fn func(body []byte) error) {
	tee.Body(res, tee.Decode(res, &tee.ObjectSink{Take: fn}), x.cache.logUnkept)
}
