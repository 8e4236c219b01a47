package cache

import (
	"io"
	"net/http"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
)

// unread records that objects were read in a form that is not cached, or with unknown
// parameters: older state no longer proves that these objects do not exist.
func (x *exchange) unread(res *http.Response) {
	r := x.cache.records
	if x.info.Verb == "get" {
		q := x.named()
		r.Read(q.UserResource(), q.Namespace, q.Member(), "", "", x.moment, false)
		r.Seen(q.UserResource(), q.Member(), versions.Following(x.moment.Version()), "")
		return
	}
	of := query.UserResource{User: x.who.user, Resource: x.resource()}
	res.Body = &unreadBody{res.Body, func() { r.Forgot(of, versions.Following(r.Highest(of.Resource).Version())) }}
}

// isUnread reports whether objects are read in a way that cannot be cached.
func (x *exchange) isUnread() bool {
	i := x.info
	return x.query == nil && x.req.Method == http.MethodGet && i.IsResourceRequest && i.Subresource == "" &&
		(i.Verb == "get" || i.Verb == "list" || i.Verb == "watch")
}

// unreadBody is the body of a list or watch that is not decoded. Its objects may be newer than
// everything known at that time, in a watch until it ends.
type unreadBody struct {
	io.ReadCloser
	passed func()
}

func (b *unreadBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.passed()
	}
	return n, err
}
