// Package authn decides on whose credentials a request goes to the apiserver.
//
// An [Authenticator] looks at a request that has reached a port of the hub and returns
// its [Identity]: [Node], if the caller may use the node's credentials, or [Caller], if
// what the caller sent is passed on and nothing is added. [Loopback] and [LoopbackFor]
// are for the plain HTTP port, [ClientCert] is for the TLS port. The identity travels in
// the request's context, from where the transports to the apiserver read it with
// [IdentityOf]; without one, a request gets none of the node's credentials.
//
// Everything here is safe for concurrent use.
package authn
