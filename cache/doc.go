// Package cache keeps what a node's clients read while the cloud can be reached,
// and answers from it while the cloud is away.
//
// A [Cache] is an http.RoundTripper between the proxy and its upstream. Every
// request goes upstream first; the cache looks at the answer while it passes.
// Only a request that reached no apiserver is answered here.
//
// # Parts
//
//   - query reads what a request asks for: a query, and the key of the view that answers it.
//   - view keeps the answers to queries: what they are, how they are fed, and their bounds.
//   - offline answers reads from views while the cloud is away.
//   - watch keeps watches open while the cloud is away, and resumes them.
//   - relist lists views again, and has them follow a store that was restored from a backup.
//   - records keeps what is known of single objects besides the copies of them in views.
//   - tee looks at the body of an answer while it passes.
//   - disk is the store and its writer, which are opened again where a file is damaged.
//
// A LIST that an apiserver answers goes through RoundTrip and online, and keepList has tee
// write its items to a [view.Builder] while the client reads. With the last bytes package
// relist commits the stage: it becomes the view, and the disk follows. While the cloud is
// away, package offline takes a [view.Snapshot] of the first view that can answer, in the
// order of the Accept header, lays the node's own status over it, and makes the body piece by
// piece as the client reads on.
//
// # The node's own status
//
// What the node writes of its own status while the cloud is away is kept by package
// overlay, and laid over the cached objects wherever they are read: package offline does
// that to a list and to initial events, package watch to a watch that waits. When the cloud is
// back, package watch puts right what the cloud did not get, after a minute, or in the next
// watch that a client opens after that; the kubelet, which sees it in its own watch, writes
// it there. Until then the overlay is kept, because the cloud may be lost again.
//
// # What must hold
//
//   - Bytes pass as they came. What the cache cannot read, it passes on.
//   - A list is whole, and at the version it names, or there is none. It is never
//     older than what a client of the same view was given before. Nothing is
//     said not to be there unless a complete view, an apiserver's own word or a
//     watch proves it, and nothing newer was seen; see records.
//   - What is gone, or was refused, stays so in every view and representation.
//   - A user reads what it read itself.
//   - Neither a slow disk nor a full one delays a client.
//
// # Concurrency
//
// A Cache is safe for concurrent use. Locks are taken in the order of the parts above it:
// what belongs to a request or to a list of the hub's own comes first, then a view, all views
// and records, as package view says, and last the disk.
package cache
