// Package liveness opens the connections to one apiserver and notices when it no longer
// answers on them.
//
// # The signal
//
// There is one: bytes that arrive on a connection. A response may take any time, since a list
// may take a minute on a slow link, or from a slow apiserver. So silence alone proves nothing:
// the hub sends a ping, and only the answer to the ping has to arrive in time. Any byte
// counts, because on a slow link that answer may wait behind megabytes of a list.
//
//	silence on a connection           action
//	0.4 s with a response pending     ping this apiserver, and the others
//	10 s with idle streams only       ping this apiserver
//	2.5 s with a ping or handshake    the connection is closed, and the apiserver is unresponsive
//	pending                           unless another connection to it has received something
//
// A ping is the request OPTIONS *, which net/http's server answers itself: an apiserver neither
// authenticates nor logs it. It is sent by the [Transport] of the silent connection. With HTTP/2
// that sends it on this connection. With HTTP/1.1 the connection is busy with its response, so
// that the ping uses another one: it judges the apiserver, not the silent connection. The same
// holds for an HTTP/2 connection that takes no new streams (100 are open, or the apiserver has
// sent GOAWAY). These connections end with the apiserver, or else when the kernel gives them up.
//
// Two things that look redundant are not:
//   - During an upload, bytes that the other side's kernel acknowledges count as activity (on
//     Linux), because a ping waits behind the upload, and by HTTP/1.1 nothing else arrives.
//     Without this, TestWhatIsSlowIsNoLoss fails for bodies that take a minute to send.
//   - The pings of net/http itself do not help. Their timeout ends a connection on which other
//     bytes arrive, and their interval also holds while nothing is pending.
//
// # Who owns what
//
// [Conns] are the connections to one apiserver. A [Transport] opens them, and pings. An
// [Attempt] follows one request from the search for a connection to the end of its response, so
// that each [Conn] knows what is pending on it. What an unresponsive apiserver means is up to
// the owner of Conns, which is called back without a lock being held: every connection is
// closed, and its requests fail with an [UnresponsiveError].
//
// The handshakes of TCP and TLS are limited in the same way, each on its own. Upgraded
// connections (exec, port-forward) are left to the kernel.
//
// # A hub without CPU
//
// A process that gets no CPU does not hear an answer either. So each check of a connection adds up
// how late it comes: its timer fires late, or other goroutines go first. If that is a fifth of the
// silence or more, or if the machine was suspended, the silence is no loss: it counts from then on
// again. Whoever can take the CPU from the hub delays the notice of a loss by that, but no longer
// than maxVoid allows.
//
// The tests of package upstream prove this against apiservers in memory: loss
// (TestLossIsNoticedWithinTheBound: black holes, stopped apiservers), no false loss
// (TestWhatIsSlowIsNoLoss: 1.5 s, 1 Mbit/s), and what idle connections cost
// (TestManyIdleWatchesCostNoMoreThanOne).
//
// Everything here is safe for concurrent use. A ping ends with its connection, or after a few
// times Timeouts.Loss.
package liveness
