package cache

import (
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/answer"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/tee"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// exchange is one request with its user and query.
type exchange struct {
	cache  *Cache
	req    *http.Request
	params query.Params // of its URL
	info   *request.RequestInfo
	who    caller
	query  *query.Query // nil if the answer is not cached in a view

	// began are the views that the answer may update at the time of the request, and readAt is the version of the object that it may
	// update, if the answer is consistent.
	began  map[query.Key]view.Began
	readAt string
	// moment is what was known of the resource at that time.
	moment view.Moment
	// history is that of the resource's store at that time.
	history int64
}

// isBeforeRestore reports whether the resource's store was restored since the request: its answer may be from before.
func (x *exchange) isBeforeRestore(of query.UserResource) bool {
	return x.cache.views.History(of) != x.history
}

// ask returns the exchange as a request to package answer.
func (x *exchange) ask() *answer.Request {
	return &answer.Request{Answers: x.cache.offline, HTTP: x.req, Resource: x.resource(), Query: x.query}
}

// begin notes what the answer may update, before the request is sent. A consistent answer
// is not older, unless the apiserver's store was restored from a backup.
func (x *exchange) begin() {
	q := x.query
	if q == nil {
		q = x.written()
	}
	if q == nil || q.User == "" {
		return
	}
	if q.Verb == "get" {
		if q.Consistent() {
			x.readAt = x.cache.views.ReadAt(q.UserResource(), q.Member())
		}
		return
	}
	x.began = map[query.Key]view.Began{}
	for _, r := range wire.Acceptable(q.Accept) {
		key := q.Key(r)
		x.began[key] = x.cache.views.Began(key)
	}
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
