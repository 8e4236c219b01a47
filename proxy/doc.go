// Package proxy forwards requests of the Kubernetes clients of a node to the apiservers in
// the cloud, so that neither can tell that it is there.
//
// # Flow of a request
//
//	client ── 10261 / 10268 ──▶ proxy           limits the body, authenticates, validates
//	                                            and forwards the request
//	                            proxy/authn     the caller's credentials, or the node's
//	                            proxy/limits    slow bodies and unread responses
//	                            proxy/upstream  selection of an apiserver, retries, breakers
//	                              └ liveness    connections, pings ──▶ apiserver
//
// [Proxy.Handler] sets a timeout for the request's body, lets an authn.Authenticator select the
// credentials, and rejects requests that cannot be forwarded unchanged. Requests of callers
// with credentials of their own are counted, and evicted if too many of them wait for their
// clients. All others go through httputil.ReverseProxy, whose own changes are undone, to an
// http.RoundTripper. In the hub that is the cache, which sends them to an upstream.Upstream
// first, and answers only if no apiserver can be reached. An error without a response becomes a
// metav1.Status: 503 if no apiserver can be reached, 504 if the request may have been
// executed.
//
// # Invariants
//
//   - Status, headers and body are the apiserver's. Only hop-by-hop headers are
//     dropped, and none is added.
//   - If the length of a body is unknown, as in a watch, every read from upstream is
//     flushed to the client at once.
//   - A client that disconnects cancels its request upstream.
//   - A body that breaks off upstream breaks off at the client: it is never
//     ended as if it were complete.
//   - The proxy's own responses are a metav1.Status.
//
// # Life cycle
//
// [New] starts nothing. [Proxy.Drain] ends watches cleanly before a shutdown, [Proxy.Wait]
// waits for the rest. Everything here is safe for concurrent use.
package proxy
