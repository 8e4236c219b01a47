// Package authn decides with which credentials a request is sent to the apiserver.
//
// An [Authenticator] returns the [Identity] of a request at a port of the hub: [Node], if
// the caller may use the node's credentials, or [Caller], if only the caller's own are sent.
// [Loopback] and [LoopbackFor] are for the plain HTTP port, [ClientCert] and [OrOwnProgram] are
// for the TLS port.
// The transports to the apiserver read the identity from the request's context, with
// [IdentityOf]; a request without one gets none of the node's credentials.
//
// Everything here is safe for concurrent use.
package authn
