// Package liveness opens the connections to one apiserver and notices when it no longer
// answers on them.
//
// [Conns] are the connections to one apiserver, [Transport] opens them, and an [Attempt]
// follows one request from the search for a connection to the end of its response, so
// that each [Conn] knows whether an answer is owed on it. An apiserver that owes an answer
// and sends nothing for [Timeouts].Loss, not a byte of any response and none to a ping
// either, is unresponsive: every connection to it is closed, and whoever waits gets an
// [UnresponsiveError].
//
//	silence on a connection           what is done
//	0.4 s while an answer is owed     HTTP/2 ping; so are other connections, and other apiservers
//	10 s with idle streams only       HTTP/2 ping
//	2.5 s after the last byte         the connection is closed, and the apiserver is unresponsive
//	                                  unless another connection to it has received something
//
// How long an answer takes does not matter, so that a list may take a minute on a narrow
// link, or in a slow apiserver. The handshakes of TCP and TLS are bound in the same way,
// each by itself. Where HTTP/2 is not spoken, a probe on another connection takes the
// place of the ping: see [Conns.Probes]. While much is being sent, acknowledgements count
// as activity (on Linux), since a ping waits behind it. Upgraded connections (exec,
// port-forward) are left to the kernel. The time in which this process was suspended
// does not count.
//
// What an unresponsive apiserver means for requests is up to the owner of Conns, which
// is called back without a lock being held. Everything here is safe for concurrent use;
// no goroutine outlives its connection.
package liveness
