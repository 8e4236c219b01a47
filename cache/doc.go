// Package cache stores what a node's clients read while the cloud can be reached, and answers
// from it while the cloud is away.
//
// A [Cache] is an http.RoundTripper between the proxy and its upstream. Every request goes
// upstream first; the cache decodes the answer while the client reads it. It answers itself
// only if the request reached no apiserver, or, in a hub that starts and does not know yet whether
// the cloud is there, if the node accepts any state.
//
// # Parts
//
//   - query parses a request into a query, and the key of the view that answers it.
//   - tee decodes the body of an answer while the client reads it.
//   - view has what users have read: views, which are the results of queries, and entries, which are of
//     single objects. It decides what answers and events change, what is proven, and what is evicted. It also keeps lists that
//     clients have read in part.
//   - log is the file on disk. It knows no views; memory is its only writer.
//   - answer answers reads from views and entries while the cloud is away.
//   - watch keeps watches open while the cloud is away, and resumes them. Before, it asks for the apiservers' version, and so finds
//     out that etcd was restored from a backup.
//   - identity knows whose a bearer token is.
//   - repeat gives an apiserver's last answer again to what is not about objects: discovery, tokens, reviews.
//   - derived has what users read instead of what is cached, because the node has changed it.
//   - spool keeps Events until the cloud is back.
//
// # Flow
//
// A LIST that an apiserver answers goes through RoundTrip, online and keepList: tee passes its
// items to a [view.Builder] while the client reads. At the end of the body package view
// commits the Builder: its items become the view, and are queued for the log. An event of a watch is
// applied to the view before the client gets it. A GET or a write changes an entry.
//
// While the cloud is away, package answer takes a [view.Snapshot] of the newest view that can answer, in
// the order of the Accept header, asks package derived what differs, and encodes the body piece by
// piece while the client reads.
//
// At the start [Open] reads the file. If the folder cannot be opened, everything is in memory, and Run tries
// again. Then the file is read, or begun anew from memory if that can answer a list by then.
//
// # Derived objects
//
// While the cloud is away, the node's own status, leases and EndpointSlices are not shown as they are
// cached, but as the node makes them. Nothing of it is stored in views. Package derived describes the
// flow, up to what happens when the cloud is back.
//
// # Invariants
//
//   - Bytes are relayed unchanged, also those that the cache cannot decode.
//   - A list is complete, and at the version it names. It is never older than a state that a
//     client of the same view has received.
//   - An object is reported as not found only if a complete view, an answer of an apiserver or a watch
//     proves it, and nothing newer was seen, or seen and not kept; see view.Views.Seek.
//   - A deletion, or a refusal, applies to every view and form.
//   - A user can read only what it has read from an apiserver itself.
//   - A slow or full disk never delays a client.
//
// # Concurrency
//
// A Cache is safe for concurrent use. Locks are taken in this order: those of a request, then those of package view, and
// last the log's.
package cache
