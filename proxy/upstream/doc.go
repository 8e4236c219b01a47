// Package upstream sends requests to the apiservers in the cloud: it selects one, retries
// where that is safe, and keeps away from those that do not answer, do not serve, or do
// not accept the node's credentials.
//
// # Flow of a request
//
// [Upstream.RoundTrip] goes through the apiservers in the order of [Balance]. One whose
// breaker is open for the request's identity is passed over. To another one the request is
// sent on a transport of that identity: the node's client certificate belongs to a TLS
// connection, so callers with credentials of their own share no connection with the node.
// Package liveness watches the connection until the response has ended. classify decides what
// an error shows about the request: it moves on to the next apiserver only where the first
// cannot have carried it out, or where sending it twice does no harm; otherwise the error states
// that it may have been delivered ([UnreachableError].Delivered).
//
// # Breakers
//
// Each apiserver has two of the same type (breaker): health, for everybody, and auth, for
// requests that carry the node's credentials. availability counts the open ones, by identity.
//
//	closed     requests are sent
//	open       requests fail at once, or go to another apiserver
//	half-open  open, while the hub's own requests, sent by [Upstream.Run] in the background,
//	           find out whether it may close; callers' requests are never used for that
//
// health opens when no connection can be made and none is open; when an apiserver is
// unresponsive on all connections (package liveness); and when it can be reached but does
// not serve the node: its etcd is gone or hangs, or a load balancer has no backends. Only
// the hub's own request for the node's Lease decides the latter (see leasePath). Any caller
// can cause a 504, even before it is authenticated, so results of callers' requests never
// open health. They only trigger this check, in the background: at once after
// [Limits].BadAnswers failures within a minute, and then after pauses that grow to 30 s. If
// this check has opened health, only this check closes it.
//
//	result of a caller's request                              counts as
//	500, 502, 503, 504, 429 of a built-in API                 a failure
//	no answer, and the caller gave up after 5 s or more       a failure
//	the apiserver broke the request or its connection off     a failure; the next request reconnects
//	no connection, while another one is open                  a failure, checked at once
//	silence on one connection, while another one is active    nothing; that connection is closed
//	the same from aggregated APIs, kubelets, evictions        nothing
//	a caller that breaks off, stalls its body or does not     nothing
//	read, or whose request is malformed or too large
//	no connection, and none is open                           unavailable
//	silence on all connections, pings included                unavailable
//
// auth opens when an apiserver answers 401 to a request as the node and to a check by the hub
// right after: a single 401 may have another cause, such as a kubelet behind the apiserver, and
// is returned to the caller. It closes with [Upstream.SetCredentials], or when a request of the
// hub's own as the node is accepted. It does not depend on the validity of a certificate by this
// machine's clock, which may be wrong.
//
// responses_test.go (failures and health), credentialcheck_test.go (auth), provoked_test.go
// (callers open nothing) and outage_test.go (loss and return) prove this.
//
// # When the last apiserver is lost
//
// Requests in flight fail at once ([Upstream.Lost] is closed), and so do new ones, with
// an [UnreachableError], until a probe is answered.
//
// # Life cycle
//
// [New] opens nothing; connections are made by requests. [Upstream.Run] probes
// apiservers that are down: without it they stay down. [Upstream.Close] closes idle connections.
// Everything here is safe for concurrent use.
package upstream
