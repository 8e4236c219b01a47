package cache

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/tee"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// online handles an answer of an apiserver, and decodes its body while the client reads it.
func (x *exchange) online(res *http.Response) {
	if res.StatusCode == http.StatusUnauthorized && !x.who.isNode() && x.info.Subresource != "proxy" { // there, it may be a backend's
		x.cache.tokens.Unauthorized(x.req.Context(), x.who.token)
	}
	socket := x.isSocket(res)
	if !socket && !identity.Authenticated(res.StatusCode) || !x.identified() {
		return
	}
	if x.who.isNode() {
		x.cache.writes.reached()
	}
	if x.isUnread() && (socket || res.StatusCode == http.StatusOK) {
		x.unread(res)
		return
	}
	if x.query == nil {
		x.cache.writes.online(x, res)
		return
	}
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusSwitchingProtocols:
		x.cache.watches.KeepSocket(res, x.req, x.query, &x.moment)
		return
	case http.StatusForbidden, http.StatusNotFound:
		x.denied(res)
		return
	default:
		return
	}
	repr := wire.Answered(x.query.Accept, res.Header.Get("Content-Type"))
	if !repr.Cacheable() {
		x.unread(res)
		return
	}
	switch x.query.Verb {
	case "get":
		x.keepObject(res, x.query, repr)
	case "list":
		x.keepList(res, repr)
	case "watch":
		x.cache.watches.Keep(res, x.req, x.query, repr, x.moment.Began(x.query.Key(repr)))
	}
}

// denied records that the user may not read the object or view, or that its kind does not
// exist. The view is kept, but not served until the user has access again.
func (x *exchange) denied(res *http.Response) {
	q := x.query
	switch {
	case q.Verb == "get" && res.StatusCode == http.StatusNotFound:
		x.notFound(res, q)
		return
	case q.Verb == "get":
		x.cache.views.Refused(q.UserResource(), q.Member())
		return
	}
	key := q.Key(wire.Representation{})
	x.cache.views.Deny(&key)
}

// keepObject caches an object that was read or written. A query without a name is for an
// object that was created.
func (x *exchange) keepObject(res *http.Response, q *query.Query, repr wire.Representation) {
	x.take(res, func(body []byte) error { return x.keepBody(q, repr, body) })
}

func (x *exchange) keepBody(q *query.Query, repr wire.Representation, body []byte) error {
	m, err := wire.Inspect(repr.Encoding, body)
	if err != nil {
		return err
	}
	if q.Name == "" {
		q.Name = string(m.Name)
	}
	if !repr.Holds(m.TypeMeta()) || string(m.Name) != q.Name || len(m.Name) == 0 || !versions.Valid(string(m.ResourceVersion)) {
		return view.ErrNameless
	}
	if x.cache.views.IsBeforeRestore(q.UserResource(), &x.moment) {
		return nil
	}
	if x.endedByWrite(repr, body) {
		x.cache.views.Gone(q.UserResource(), q.Member(), versions.Higher(x.moment.Version(), string(m.ResourceVersion)), types.UID(m.UID), true)
		return nil
	}
	bare, err := wire.AppendBare(nil, repr.Encoding, body)
	if err != nil {
		return err
	}
	x.cache.views.Keep(q.UserResource(), &view.Read{
		Namespace: q.Namespace, Name: q.Name, Version: string(m.ResourceVersion), UID: types.UID(m.UID), Type: m.TypeMeta(), Repr: repr, Bare: bare,
		Own: true, Began: x.moment,
	})
	x.cache.views.Confirm(q.UserResource(), q.Namespace, q.Member(), string(m.ResourceVersion), types.UID(m.UID), &x.moment, q.Consistent())
	if x.who.isNode() && x.info.Resource == "pods" && x.info.Subresource == "status" && repr.Metadata == "" {
		x.cache.derived.Reported(view.Object{Type: m.TypeMeta(), Repr: repr, Bare: bare})
	}
	return nil
}

// logUnkept logs how decoding a body ended.
func (c *Cache) logUnkept(err error) {
	tee.LogUnkept(c.log, err)
}

// keepList caches a list, or a page of one.
func (x *exchange) keepList(res *http.Response, repr wire.Representation) {
	c, q := x.cache, x.query
	key := q.Key(repr)
	var before *view.PartialList
	if q.ContinueToken != "" {
		if before = c.pages.Before(key, q.ContinueToken); before == nil {
			x.passPage(res, repr)
			return
		}
	}
	v := c.views.Acquire(key)
	b := v.NewBuilder(x.moment.Began(key), q.Consistent(), repr.Encoding)
	tee.Body(res, tee.NewDecoder(repr, res, b), func(err error) {
		if err == nil {
			err = x.listed(v, b, before)
		}
		if errors.Is(err, view.ErrListTooLarge) && !errors.Is(err, tee.ErrStopReading) {
			v.DropTooLarge()
		}
		if err != nil {
			c.views.Floor(v.Key.UserResource(), b.Newest())
			c.views.RecordShown(b)
		}
		if errors.Is(err, view.ErrNameless) {
			c.views.AskLater(v)
		}
		c.logUnkept(err)
		b.End()
		v.Release()
	})
}

// passPage relays a page of a list that is not cached. With the last one the client has the
// whole list.
func (x *exchange) passPage(res *http.Response, repr wire.Representation) {
	v := x.cache.views.Acquire(x.query.Key(repr))
	page := &tee.ListMeta{}
	tee.Body(res, tee.NewDecoder(repr, res, page), func(err error) {
		if err == nil && page.Continue == "" && versions.Valid(page.ResourceVersion) {
			v.MarkSeen(page.ResourceVersion)
		}
		x.cache.logUnkept(err)
		v.Release()
	})
}

// errMixed is returned if the pages of a list have different versions.
var errMixed = errors.New("the pages of a list are of different versions")

// listed handles a page, or a whole list, that was read to its end.
func (x *exchange) listed(v *view.View, b *view.Builder, before *view.PartialList) error {
	c, version := x.cache, b.Meta.ResourceVersion
	if !versions.Valid(version) {
		return view.ErrNameless
	}
	next := b
	if before != nil {
		if before.Version != version {
			c.pages.Done(v.Key, x.query.ContinueToken)
			v.MarkSeen(version)
			return errMixed
		}
		next = before.With(b)
		defer next.End()
	}
	if next.Bytes > view.MaxListBytes {
		return view.ErrListTooLarge
	}
	if token := b.Meta.Continue; token != "" {
		v.Hold()
		c.views.Floor(v.Key.UserResource(), version) // the client may never request the rest
		c.views.RecordShown(b)
		c.pages.Wait(token, &view.PartialList{Builder: next.Clone(), View: v, Version: version})
		return nil
	}
	if before != nil {
		c.pages.Done(v.Key, x.query.ContinueToken)
	}
	if c.views.Commit(next, version) == view.Outdated && !next.Consistent {
		c.watches.Verify(v, x.req)
	}
	return nil
}

// unread records that objects were read in a form that is not cached, or with unknown
// parameters: older state no longer proves that these objects do not exist.
func (x *exchange) unread(res *http.Response) {
	views := x.cache.views
	if x.info.Verb == "get" {
		q := x.named()
		views.Confirm(q.UserResource(), q.Namespace, q.Member(), "", "", &x.moment, false)
		views.Seen(q.UserResource(), q.Member(), versions.Following(views.Highest(q.Resource).Version()), "")
		return
	}
	of := query.UserResource{User: x.who.user, Resource: x.resource()}
	passed := func() { views.Floor(of, versions.Following(views.Highest(of.Resource).Version())) }
	isJSON := strings.HasPrefix(res.Header.Get("Content-Type"), runtime.ContentTypeJSON)
	if x.query != nil && x.info.Verb == "watch" && !isJSON { // JSON is a table, which is for people
		passed = func() { x.cache.watches.Unread(x.query) }
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		tee.Upgraded(res, func([]byte) { passed() })
		return
	}
	res.Body = &unreadBody{res.Body, passed}
}

// isUnread reports whether objects are read in a way that cannot be cached.
func (x *exchange) isUnread() bool {
	i := x.info
	return x.query == nil && x.req.Method == http.MethodGet && i.IsResourceRequest && i.Subresource == "" &&
		(i.Verb == "get" || i.Verb == "list" || i.Verb == "watch")
}

// isSocket reports whether an answer makes the connection a watch over WebSocket.
func (x *exchange) isSocket(res *http.Response) bool {
	return res.StatusCode == http.StatusSwitchingProtocols && x.info.Verb == "watch" && (x.query != nil || x.isUnread())
}

// listFirst returns the error with which a watch over WebSocket is answered if its client has to list before; else nil.
func (x *exchange) listFirst() error {
	if x.query == nil || x.query.User == "" || x.query.Verb != "watch" || x.req.Header.Get("Upgrade") == "" {
		return nil
	}
	select {
	case <-x.cache.up.Lost(x.req.Context()):
		return nil
	default:
		return x.cache.watches.ListFirst(x.query)
	}
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
