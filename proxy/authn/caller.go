package authn

import (
	"context"
	"errors"
	"net/http"
	"strings"
)

// Identity selects the credentials with which a request is sent to the apiserver.
type Identity int

const (
	// Caller sends the caller's own credentials, if any.
	Caller Identity = iota
	// Node sends the node's credentials.
	Node
)

// ErrUnauthenticated is returned by an Authenticator for a caller that has
// neither credentials of its own nor a right to the node's.
var ErrUnauthenticated = errors.New("neither a bearer token nor the node's own client certificate was presented")

// ErrForbidden is wrapped by an Authenticator's error for a request that may not use the node's
// credentials. The caller gets 403; with its own credentials it could succeed.
var ErrForbidden = errors.New("the node's identity is not lent to this request")

// Authenticator decides with which credentials r is sent upstream. Its error is
// ErrUnauthenticated or wraps it; the caller of r then gets 401.
type Authenticator func(r *http.Request) (Identity, error)

// Loopback is the Authenticator of a port that only the node itself can reach: callers without
// credentials count as the node.
func Loopback(r *http.Request) (Identity, error) { return LoopbackFor(nil)(r) }

// LoopbackFor returns the Authenticator of the plain HTTP port. A caller without credentials
// counts as the node unless refuse returns an error, which is sent to the caller. A nil
// refuse accepts all of them. It is not called for callers with credentials.
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

// noCredentialsError is ErrUnauthenticated with the reason for a caller without credentials at
// the plain port.
type noCredentialsError struct{ reason error }

func (e *noCredentialsError) Error() string {
	return "this request has no credentials, and the node's are lent to the node's own programs only: " + e.reason.Error()
}

func (e *noCredentialsError) Is(target error) bool { return target == ErrUnauthenticated }
func (e *noCredentialsError) Unwrap() error        { return e.reason }

// webSocketToken is the prefix of the subprotocol in which WebSocket clients, which cannot set
// Authorization, send a bearer token.
const webSocketToken = "base64url.bearer.authorization.k8s.io."

// hasCredentials reports whether h carries credentials of any kind. An unknown scheme counts:
// the apiserver has to refuse it, and the hub must not replace it by the node's identity.
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

// AsNode returns ctx for the hub's own requests, which carry the node's identity.
func AsNode(ctx context.Context) context.Context { return WithIdentity(ctx, Node) }

// IdentityOf returns the identity of a request from its context. Without one it returns Caller,
// so that the node's credentials are never used by accident.
func IdentityOf(ctx context.Context) Identity {
	id, _ := ctx.Value(identityKey{}).(Identity)
	return id
}
