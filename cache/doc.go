// Package cache stores what a node's clients read while the cloud can be reached, and answers
// from it while the cloud is away.
//
// A [Cache] is an http.RoundTripper between the proxy and its upstream. Every request goes
// upstream first; the cache decodes the answer while the client reads it. It answers itself
// only if the request reached no apiserver, or, in a hub that starts and does not know yet whether
// the cloud is there, if the node accepts any state. docs/architecture.md says which package does what.
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
