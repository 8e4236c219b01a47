// Package view caches the results of queries: a [View] is the result of one, and [Views] are
// all of them, with their limits.
//
// # Model
//
// A view is the result of one query. Its key is the user, the resource, the namespace, both
// selectors and the representation. Its state is an index of members (name,
// resourceVersion, hash of the content), the latest version at which they are known, and
// whether they are complete. Objects are kept as the bytes that the apiserver sent; views of
// one resource and representation share equal bytes. Objects that a user has read by GET,
// or got back from a write, are members of one Single view per user and resource, which is
// never complete.
//
// # How a view is updated
//
//   - A list replaces the view when its last page has been read completely and decoded,
//     unless the view is newer.
//   - An event is applied if it is newer than the view, and the position of its watch is not above
//     the view's version: see [Feed]. So several watches can update one view. One that
//     is above the view would leave a gap: it is opened again, at the view's version.
//   - Initial events are applied together, at the bookmark that ends them.
//   - Only a list, an event or a bookmark changes a view's version; only an answer of 200
//     changes its members.
//   - The view is updated before the client gets the event; the disk follows within a second.
//
// A view is lost while it has no such state, or a part of it is damaged. Only a client's list brings it back:
// [Views.Ask] decides whether the client's watch gets 410, so that it lists. Package view owns all this; package watch opens and
// ends streams accordingly, and package restore reports a store that was restored ([Views.Restored]).
//
// A view is empty at first. It is dropped when it is evicted, when no client has read it for
// long (see Views.Sweep and Views.DropUnread), and when it is damaged on disk. Code that updates or reads a view acquires it, and
// releases it.
//
// # Concurrency
//
// Views and each View are safe for concurrent use; a [Builder] and a [Snapshot] are
// for one goroutine at a time. A view's lock guards its index and orders its changes on
// disk; the only I/O under it is the first read of the index. Locks are taken in the order
// evictions, view, views, records. No hook is called under the last three.
package view
