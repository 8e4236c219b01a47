package cache

import (
	"net/http"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/quota"
)

// caller is the sender of a request.
type caller struct {
	user  string          // the user's key; empty while an apiserver has not identified the token
	token *identity.Token // nil for the node
}

func (w *caller) isNode() bool { return w.token == nil }

// callerOf returns the caller of r. It returns false for callers that the cache does not
// serve: those that an apiserver may authenticate as another user than the hub does, and
// those without a bearer token that are not the node.
func (c *Cache) callerOf(r *http.Request) (caller, bool) {
	if identity.Ambiguous(r.Header) {
		return caller{}, false
	}
	if c.opts.IsNode(r.Context()) {
		return caller{user: query.NodeUser}, true
	}
	token := c.tokens.Token(r.Header)
	if token == nil {
		return caller{}, false
	}
	return caller{c.tokens.User(token), token}, true
}

// Tenant returns to which user an apiserver has said that the bearer token in a request's header
// belongs, and that user's tenant (see quota.Tenant); both are empty while the token is not
// known. It asks no apiserver.
func (c *Cache) Tenant(h http.Header) (tenant, user string) {
	if token := c.tokens.Token(h); token != nil {
		user = c.tokens.User(token)
	}
	return quota.Tenant(user), user
}

// identified identifies the user that an apiserver has answered, and reports whether the
// answer may be cached for it.
func (x *exchange) identified() bool {
	if x.who.isNode() {
		return true
	}
	user, err := x.cache.tokens.Identify(x.req.Context(), x.who.token)
	if err != nil {
		x.cache.logUnkept(err)
		return false
	}
	x.who.user = user
	if x.query != nil {
		x.query.User = user
	}
	return true
}

// sameUser returns nil if the credentials of a request that the hub has sent again, after an
// outage for example, still belong to this user. Its error is identity.ErrReassigned, or
// another one while that is unknown.
func (c *Cache) sameUser(user string, again *http.Request) error {
	who, ok := c.callerOf(again)
	if ok && !who.isNode() {
		var err error
		if who.user, err = c.tokens.Identify(again.Context(), who.token); err != nil {
			return err
		}
	}
	if who.user != user {
		return identity.ErrReassigned
	}
	return nil
}

// allowed returns nil if the caller may read offline what its user has read.
func (x *exchange) allowed() error {
	if x.who.isNode() {
		return nil
	}
	return x.cache.tokens.Offline(x.who.token, x.who.user)
}
