package cache

import (
	"errors"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/tee"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// online looks at an answer of an apiserver, and has its body looked at while it
// passes.
func (x *exchange) online(res *http.Response) {
	if res.StatusCode == http.StatusUnauthorized && !x.who.isNode() && x.info.Subresource != "proxy" { // there, it may be a backend's
		x.cache.tokens.Unauthorized(x.req.Context(), x.who.token)
	}
	if !identity.Authenticated(res.StatusCode) || !x.identified() {
		return
	}
	if x.who.isNode() {
		x.cache.writes.reached()
	}
	if x.isUnread() && res.StatusCode == http.StatusOK {
		x.unread(res)
		return
	}
	if x.query == nil {
		x.cache.writes.online(x, res)
		return
	}
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusForbidden, http.StatusNotFound:
		x.denied(res)
		return
	default:
		return
	}
	repr := negotiation.Answered(x.query.Accept, res.Header.Get("Content-Type"))
	if !repr.Cacheable() {
		x.cache.answers.NotKept(x.query)
		x.unread(res)
		return
	}
	switch x.query.Verb {
	case "get":
		x.keepObject(res, x.query, repr)
	case "list":
		x.keepList(res, repr)
	case "watch":
		x.cache.watches.Keep(res, x.req, x.query, repr, x.began[x.query.Key(repr)])
	}
}

// denied notes that the user may not read what it asked for, or that its kind is
// not there. What is kept of a view stays, but is not handed out until the user
// is let in again.
func (x *exchange) denied(res *http.Response) {
	q := x.query
	switch {
	case q.Verb == "get" && res.StatusCode == http.StatusNotFound:
		x.notFound(res, q)
		return
	case q.Verb == "get":
		x.cache.records.Refused(q.UserResource(), q.Member())
		return
	}
	key := q.Key(negotiation.Representation{})
	x.cache.views.Deny(&key)
}

// keepObject has an object that was read, or written, kept. Without a name in the query it
// is one that was created.
func (x *exchange) keepObject(res *http.Response, q *query.Query, repr negotiation.Representation) {
	sink := &tee.ObjectSink{Take: func(body []byte) error { return x.keepBody(q, repr, body) }}
	tee.Body(res, tee.Decode(res, sink), x.cache.looked)
}

func (x *exchange) keepBody(q *query.Query, repr negotiation.Representation, body []byte) error {
	m, err := wire.Inspect(repr.Encoding, body)
	if err != nil {
		return err
	}
	if q.Name == "" {
		q.Name = string(m.Name)
	}
	if !repr.Holds(m.TypeMeta()) || string(m.Name) != q.Name || len(m.Name) == 0 || len(m.ResourceVersion) == 0 {
		return view.ErrNameless
	}
	if x.endedByWrite(repr, body) {
		x.cache.views.Gone(q.UserResource(), q.Member(), versions.Higher(x.moment.Version(), string(m.ResourceVersion)), types.UID(m.UID), true)
		return nil
	}
	bare, err := wire.AppendBare(nil, repr.Encoding, body)
	if err != nil {
		return err
	}
	v := x.cache.views.Acquire(q.Key(repr))
	defer v.Release()
	v.KeepSingle(m.TypeMeta(), q.Member(), x.began[v.Key], string(m.ResourceVersion), bare)
	x.cache.records.Read(q.UserResource(), q.Namespace, q.Member(), string(m.ResourceVersion), types.UID(m.UID), x.moment, q.Consistent())
	x.cache.views.EnforceLimit(v)
	return nil
}

// looked is told how looking at a body ended.
func (c *Cache) looked(err error) {
	tee.LogUnkept(c.log, err)
}

// keepList has a list, or a page of it, kept.
func (x *exchange) keepList(res *http.Response, repr negotiation.Representation) {
	c, q := x.cache, x.query
	key := q.Key(repr)
	var before *view.PageStage
	if q.ContinueToken != "" {
		if before = c.pages.Before(view.PageOf(key, q.ContinueToken)); before == nil {
			x.passPage(res, repr)
			return
		}
	}
	v := c.views.Acquire(key)
	st := v.NewStage(x.began[key], q.Consistent())
	tee.Body(res, tee.NewDecoder(repr, res, st), func(err error) {
		if err == nil {
			err = x.listed(v, st, before)
		}
		if errors.Is(err, view.ErrStageFull) && !errors.Is(err, tee.ErrStopReading) {
			x.tooLarge(v)
		}
		if err != nil {
			c.records.Forgot(v.Key.UserResource(), st.Newest())
		}
		c.looked(err)
		st.End()
		v.Release()
	})
}

// passPage lets a page pass whose list is not kept. The last one makes the list whole.
func (x *exchange) passPage(res *http.Response, repr negotiation.Representation) {
	v := x.cache.views.Acquire(x.query.Key(repr))
	page := &lastPage{}
	tee.Body(res, tee.NewDecoder(repr, res, page), func(err error) {
		if err == nil && page.Continue == "" {
			x.passed(v, page.ResourceVersion)
		}
		x.cache.looked(err)
		v.Release()
	})
}

// errMixed is returned where the pages of a list are not of one version.
var errMixed = errors.New("the pages of a list are of different versions")

// listed is called with a page, or a whole list, that was read to its end.
func (x *exchange) listed(v *view.View, st *view.Stage, before *view.PageStage) error {
	c, version := x.cache, st.Meta.ResourceVersion
	if !versions.Valid(version) {
		return view.ErrNameless
	}
	next := st
	if before != nil {
		if before.Version != version {
			c.pages.Done(view.PageOf(v.Key, x.query.ContinueToken))
			x.passed(v, version)
			return errMixed
		}
		next = before.With(st)
		defer next.End()
	}
	if next.Bytes > view.MaxStage {
		return view.ErrStageFull
	}
	if token := st.Meta.Continue; token != "" {
		v.Hold()
		c.records.Forgot(v.Key.UserResource(), version) // the rest may never be asked for
		c.pages.Wait(view.PageOf(v.Key, token), &view.PageStage{Stage: next.Keep(), View: v, Version: version})
		return nil
	}
	if before != nil {
		c.pages.Done(view.PageOf(v.Key, x.query.ContinueToken))
	}
	c.lister.Commit(x.query, x.req, next, version)
	return nil
}

// written is a query for the object that a write is about, or nil. There is none for a
// dry run: its answer shows an object that does not exist.
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

// named is a query for the object that the path of a write names. One that is created has
// no name there.
func (x *exchange) named() *query.Query {
	info := x.info
	q := &query.Query{
		User: x.who.user, Verb: "get", Name: info.Name,
		Resource: schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource},
		Accept:   x.req.Header.Get("Accept"),
	}
	if info.Resource != "namespaces" {
		q.Namespace = info.Namespace
	}
	return q
}

// passed is called when a client has got a list that was not kept.
func (x *exchange) passed(v *view.View, version string) {
	if versions.Valid(version) && v.SawState(version) {
		x.cache.lister.Refresh(v, x.req)
	}
}

// tooLarge is called when a client has got a list that is too large to be kept. Which
// version it was of is not known.
func (x *exchange) tooLarge(v *view.View) {
	if !v.IsComplete() {
		return
	}
	x.cache.log.Warn("not kept any more: the list has become too large", "view", v.String(), "max", view.MaxStage)
	x.cache.lister.BackOff(v)
	v.DropComplete()
}

// lastPage reads of a page what it says of its list.
type lastPage struct{ wire.ListMeta }

func (*lastPage) Item([]byte, *wire.Meta) error { return nil }

func (p *lastPage) List(m wire.ListMeta) error {
	p.ListMeta = m
	return nil
}
