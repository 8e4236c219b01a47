// Package proxy carries requests between the Kubernetes clients of a node and
// the apiservers in the cloud, so that neither can tell that it is there.
//
// # Data flow
//
//	client ── 10261 / 10268 ──▶ Authenticator: who calls
//	                            Proxy:         httputil.ReverseProxy, nothing rewritten
//	                            Upstream:      which apiserver, on whose credentials
//	                                    └────▶ apiserver (HTTP/2; HTTP/1.1 for upgrades)
//
// An [Authenticator] decides whether the node's identity is lent to a request
// ([Node]) or the caller's own credentials are passed on and nothing is lent
// ([Own]). The two never share a connection: the node's client certificate
// belongs to a TLS connection, so callers with credentials of their own go
// through connections that present no certificate.
//
// [Upstream] is an http.RoundTripper over all apiservers. A request moves on to
// the next one only where the first cannot have carried it out.
//
// # What must hold
//
//   - Status, headers and body are the apiserver's. Only hop-by-hop headers are
//     dropped, and none is added.
//   - Every read from upstream is flushed to the client at once where the length
//     of the body is not known, watches among them.
//   - A client that goes away cancels its request upstream.
//   - A body that breaks off upstream breaks off at the client: it is never
//     ended as if it were whole.
//   - What the proxy itself has to say is a metav1.Status.
//
// # Life cycle
//
// [NewUpstream] and [New] open nothing; connections are made by requests.
// [Proxy.Drain] ends watches cleanly before a shutdown, [Upstream.Close] drops
// idle connections after it. Everything here is safe for concurrent use.
package proxy
