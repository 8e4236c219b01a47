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
//   - view stores the results of queries, updates them by lists and events, and limits them.
//   - pages keeps lists that clients have read in part.
//   - offline answers reads from views while the cloud is away.
//   - watch keeps watches open while the cloud is away, and resumes them.
//   - restore asks for the apiservers' version, and so finds out that etcd was restored from a backup.
//   - repeat answers what is not about objects as an apiserver has last: discovery, tokens, reviews.
//   - derived has what users read instead of what is cached, because the node has changed it.
//   - records stores what is known of single objects besides their copies in views.
//   - tee decodes the body of an answer while the client reads it.
//   - disk is the store and its writer, which is opened late if need be.
//
// A LIST that an apiserver answers goes through RoundTrip, online and keepList: tee passes its
// items to a [view.Builder] while the client reads. At the end of the body package view
// commits the Builder: its items become the view, and the disk follows. While the cloud is
// away, package offline takes a [view.Snapshot] of the first view that can answer, in the
// order of the Accept header, asks package derived what differs, and encodes the body piece by
// piece while the client reads.
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
//     client of the same view has received. An object is reported as not found only if a
//     complete view, an answer of an apiserver or a watch proves it, and nothing newer was
//     seen; see view.Views.Seek and package records.
//   - A deletion, or a refusal, applies to every view and representation.
//   - A user can read only what it has read from an apiserver itself.
//   - A slow or full disk never delays a client.
//
// # Concurrency
//
// A Cache is safe for concurrent use. Locks are taken in this order: those of a request, then a view, all views and records (see package view), and last the disk.
package cache
