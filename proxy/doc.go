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
// # Loss and return
//
// An apiserver is lost when it owes an answer and has sent nothing for
// [Limits].Loss: not a byte of any answer, and none to a ping either. How long an
// answer takes does not matter, so that a list may take a minute on a narrow
// link, or in a slow apiserver.
//
//	silence on a connection           what is done
//	0.4 s while an answer is owed     HTTP/2 ping; so are other connections, and other apiservers
//	10 s with idle streams only       HTTP/2 ping
//	2.5 s after the last byte         the connection is dropped, and the apiserver is lost
//	                                  unless another connection to it has shown life
//
// TCP's and TLS's handshakes are bound in the same way, each by itself. Where
// HTTP/2 is not spoken a probe beside the connections takes the place of their
// pings. While much is being sent, acknowledgements count as life (on Linux),
// since a ping waits behind it. Upgraded connections are left to the kernel.
// The time in which this process stood still is no silence.
//
// With the loss all that is under way fails, [Upstream.Lost] tells, and requests
// fail at once from then on, until a probe is answered.
//
// # What a caller can provoke
//
// An apiserver that can be reached and does not serve the node is lost, too: its etcd
// is gone or hangs, or a load balancer has no backends. Only the hub's own request for
// the node's Lease decides that (see leasePath). Any caller can get a 504, before it is
// even authenticated, so that what becomes of callers' requests never counts as a loss.
// At most it makes the hub ask, by itself, while no request waits: at once after
// [Limits].BadAnswers doubts within a minute, and then after pauses that grow to 30 s.
// An apiserver that was lost in this way is back by the same request only.
//
//	what becomes of a caller's request                        counts as
//	500, 502, 503, 504, 429 of a built-in API                 a doubt
//	no answer, and the caller gave up after 5 s or more       a doubt
//	the apiserver broke the request or its connection off     a doubt; the next request reconnects
//	no connection, while another one stands                   a doubt, at once
//	silence on one connection, while another one is alive     nothing; that connection is dropped
//	the same from aggregated APIs, kubelets, evictions        nothing
//	a caller that breaks off, stalls its body or does not     nothing
//	read, or whose request is malformed or too large
//	no connection, and none stands                            a loss
//	silence on all connections, pings and probes included     a loss
//
// Callers with credentials of their own share no connection with the node, nor with the
// hub's question in its name, so that they cannot have that broken off either.
//
// # A node that is not let in
//
// A 401 to a request in the node's name is passed on if it says something of that request
// only. Where the apiserver says it to a look of the hub's own as well, it refuses the
// node's credentials: to the node it is lost from then on, and to nobody else. That ends
// with [Upstream.SetCredentials], or when a probe in the node's name is let in.
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
// [Upstream.Run] probes what is lost: without it nothing comes back.
// [Proxy.Drain] ends watches cleanly before a shutdown, [Upstream.Close] drops
// idle connections after it. Everything here is safe for concurrent use.
package proxy
