// Package view has what users have read: views, which are the results of queries, and entries, which are of single objects.
//
// # Model
//
// A view is the result of one query. Its key is the user, the resource, the namespace, both selectors, and whether its objects are whole
// or metadata. Its state is an exact snapshot: an index of members (name, and a [Revision]: resourceVersion, UID, SHA-256 of the content),
// the latest version at which they are known, and whether they are complete. It has no encoding: of a member that was read in JSON and in
// protobuf it has both, and of others the missing one is made when it is asked for. Only where the hub does not know the types, as
// those of custom resources, the encoding is part of the key.
//
// A resource is what is known of one resource to one user, in all versions of its API: its views, its entries, and bounds for
// all of its objects. An entry is what is known of one object besides views:
//
//   - Copies, which were read by a GET, got back from a write, or shown in a stream that no view keeps. All are of the newest
//     version that was read so; there is one for each form.
//   - That it is gone at a version, with its UID where that is known; or refused to a GET.
//   - A doubt: a version up to which something may have happened to the object. Older copies are not served. It ends when a
//     read, or a complete view above it, shows the object. A doubt may also be of a namespace.
//
// The floor is a version of the resource: objects were shown up to there and not kept, so no view below it proves that one does
// not exist. [Views.Seek] says what follows from all of this for a GET.
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
//   - The view is updated before the client gets the event; the disk follows.
//
// A view is lost while it has no such state, or a part of it is damaged. Only a client's list brings it back:
// [Views.Ask] decides whether the client's watch gets 410, so that it lists. Package view owns all this; package watch opens and
// ends streams accordingly, and reports a store that was restored ([Views.Restored]).
//
// A view is empty at first. It is dropped when it is evicted, and when no client has read it for
// long (see Views.Sweep and Views.DropUnread). Then the floor rises to its version. Code that updates or reads a view acquires it, and
// releases it.
//
// # On disk
//
// Each view is a table of the log: a row for the header, and one for each member, whose body is the object. Each resource is
// another one: a row for the bounds, and one for each entry, whose bodies are its copies. What is changed while a
// resource is locked is one commit. [LogState] is the [github.com/edgehub-io/edgehub/cache/log.State] of the log, which reads
// checkpoints from it. If the log has lost changes, views that were read before are dropped, and every object is refused until a GET
// of it succeeds.
//
// # Concurrency
//
// Views and each View are safe for concurrent use; a [Builder] and a [Snapshot] are
// for one goroutine at a time, and a [LogState] is for the log. A resource's lock guards its views and entries, and orders their changes on
// disk; no I/O is done under it. Locks are taken in this order: that of restores or evictions, a resource's, that of all views, and
// last the log's. Of the hooks, only Damaged may be called under a resource's.
package view
