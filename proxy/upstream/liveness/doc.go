// Package liveness opens the connections to one apiserver and notices when it no longer
// answers on them.
//
// [Conns] are the connections to one apiserver, [Transport] opens them, and an [Attempt]
// follows one request from the search for a connection to the end of its response, so
// that each [Conn] knows whether a response is pending. An apiserver that sends nothing for
// [Timeouts].Loss while a response is pending, neither a byte of any response nor the answer
// to a ping, is unresponsive: every connection to it is closed, and its requests fail with
// an [UnresponsiveError].
//
//	silence on a connection           action
//	0.4 s with a response pending     HTTP/2 ping on this and other connections, and to other apiservers
//	10 s with idle streams only       HTTP/2 ping
//	2.5 s after the last byte         the connection is closed, and the apiserver is unresponsive
//	                                  unless another connection to it has received something
//
// A response may take any time: a list may take a minute on a slow link, or from a slow
// apiserver. The handshakes of TCP and TLS are limited in the same way, each on its own.
// Without HTTP/2 a probe on another connection takes the place of the ping: see
// [Conns.Probes]. During large uploads acknowledgements count as activity (on Linux),
// because a ping waits behind the upload. Upgraded connections (exec, port-forward) are left
// to the kernel. Time during which this process was suspended does not count.
//
// What an unresponsive apiserver means for requests is up to the owner of Conns, which
// is called back without a lock being held. Everything here is safe for concurrent use;
// no goroutine outlives its connection.
package liveness
