// Package proxy forwards requests of the Kubernetes clients of a node to the apiservers in
// the cloud, so that neither can tell that it is there.
//
// # Flow of a request
//
//	client ── 10261 / 10268 ──▶ proxy           bounds the body, asks authn who calls,
//	                                            validates and forwards the request
//	                            proxy/authn     the caller's credentials, or the node's
//	                            proxy/limits    slow bodies and unread responses
//	                            proxy/upstream  which apiserver, retries, breakers
//	                              └ liveness    connections, pings ──▶ apiserver
//
// [Proxy.Handler] puts a timeout on the request's body, has an authn.Authenticator decide
// on whose credentials it is sent, and rejects what cannot arrive at an apiserver as it
// was sent. Requests of callers with credentials of their own are counted, and evicted
// where too many of them wait for their clients. What is left goes through
// httputil.ReverseProxy, whose own changes are undone, to an http.RoundTripper: in the
// hub that is the cache, which sends what it cannot answer to an upstream.Upstream. That
// selects an apiserver whose breakers are closed and sends the request on a connection
// that package liveness watches: HTTP/2, or HTTP/1.1 for upgrades. The response comes back
// the same way: its header is passed on as it is, its body is flushed chunk by chunk. An
// error without a response becomes a metav1.Status: 503 if no apiserver can be reached, 504
// if the request may have been carried out.
//
// # What must hold
//
//   - Status, headers and body are the apiserver's. Only hop-by-hop headers are
//     dropped, and none is added.
//   - Every read from upstream is flushed to the client at once where the length
//     of the body is not known, watches among them.
//   - A client that goes away cancels its request upstream.
//   - A body that breaks off upstream breaks off at the client: it is never
//     ended as if it were complete.
//   - Responses of the proxy's own are a metav1.Status.
//
// # Life cycle
//
// [New] starts nothing. [Proxy.Drain] ends watches cleanly before a shutdown, [Proxy.Wait]
// waits for the rest. Everything here is safe for concurrent use.
package proxy
