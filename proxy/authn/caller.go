package authn

import (
	"context"
	"errors"
	"net/http"
	"strings"
)

// Identity says on whose credentials a request goes to the apiserver.
type Identity int

const (
	// Caller passes on what the caller sent and lends it nothing.
	Caller Identity = iota
	// Node lends the caller the node's credentials.
	Node
)

// ErrUnauthenticated is returned by an Authenticator for a caller that has
// neither credentials of its own nor a right to the node's.
var ErrUnauthenticated = errors.New("neither a bearer token nor the node's own client certificate was presented")

// ErrForbidden is wrapped by an Authenticator's error about a caller whom
// credentials of its own would help, but not those it might borrow. The caller
// gets 403.
var ErrForbidden = errors.New("the node's identity is not lent to this request")

// Authenticator decides on whose credentials r goes upstream. Its error is
// ErrUnauthenticated or wraps it; the caller of r then gets 401.
type Authenticator func(r *http.Request) (Identity, error)

// Loopback is the Authenticator of a port that only the node itself can reach:
// whoever comes without credentials is taken for the node.
func Loopback(r *http.Request) (Identity, error) { return LoopbackFor(nil)(r) }

// LoopbackFor returns the Authenticator of the plain HTTP port. A caller without
// credentials is taken for the node unless refuse returns why it is not; that goes
// to the caller. nil refuses nobody. Callers with credentials are not asked about.
func LoopbackFor(refuse func(r *http.Request) error) Authenticator {
	return func(r *http.Request) (Identity, error) {
		if hasCredentials(r.Header) {
			return Caller, nil
		}
		if refuse != nil {
			if err := refuse(r); err != nil {
				return Caller, &noCredentialsError{err}
			}
		}
		return Node, nil
	}
}

// noCredentialsError is an ErrUnauthenticated in words for a caller without credentials
// at the plain port.
type noCredentialsError struct{ reason error }

func (e *noCredentialsError) Error() string {
	return "this request has no credentials, and the node's are lent to the node's own programs only: " + e.reason.Error()
}

func (e *noCredentialsError) Is(target error) bool { return target == ErrUnauthenticated }
func (e *noCredentialsError) Unwrap() error        { return e.reason }

// webSocketToken begins the subprotocol in which WebSocket clients, which cannot
// set Authorization, send a bearer token to the apiserver.
const webSocketToken = "base64url.bearer.authorization.k8s.io."

// hasCredentials reports whether h carries anything that an apiserver would
// authenticate a caller by. A scheme that the apiserver does not know counts:
// it is for the apiserver to refuse it, not for us to put the node's identity
// in its place.
func hasCredentials(h http.Header) bool {
	if _, ok := h["Authorization"]; ok {
		return true
	}
	for _, line := range h["Sec-Websocket-Protocol"] {
		for protocol := range strings.SplitSeq(line, ",") {
			if strings.HasPrefix(strings.TrimSpace(protocol), webSocketToken) {
				return true
			}
		}
	}
	return false
}

type identityKey struct{}

// WithIdentity returns ctx for requests that are sent as id: see IdentityOf.
func WithIdentity(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// AsNode is for requests that the hub makes itself: they carry the node's identity.
func AsNode(ctx context.Context) context.Context { return WithIdentity(ctx, Node) }

// IdentityOf returns the identity of a request that came through a Proxy, from
// its context. It returns Own for a request that no Authenticator has seen, so
// that nothing is lent by accident.
func IdentityOf(ctx context.Context) Identity {
	id, _ := ctx.Value(identityKey{}).(Identity)
	return id
}
