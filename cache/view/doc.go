// Package view keeps what queries have returned: each answer is a [View], and all of them
// are [Views], with their bounds.
//
// # Model
//
// A view is what one query returned: its key is the user, the resource, the
// namespace, both selectors and the representation; its state is an index of
// members (name, resourceVersion, hash of the content), the last version that is
// proven for them, and whether they are all. Objects are kept as the bytes that
// came; views of one resource and representation share equal bytes. What was read
// by GET, or came back from a write, is a member of a view of its own for each
// user, which is never complete.
//
// # How a view is fed
//
//   - A list counts when its body has ended cleanly and was understood, and its
//     last page has come; unless the view is newer.
//   - An event counts if it is newer than the view, and comes from a stream that
//     has passed everything the view has. So any number of streams feed one view,
//     and a stream that begins above it feeds nothing: the view is listed again.
//   - Initial events count together, at the bookmark behind them.
//   - Nothing but a list, an event or a bookmark moves a view's version; nothing
//     but an answer of 200 changes what is in it.
//   - The view knows before the client does; the disk follows within a second.
//
// A view is empty until it is fed, and is dropped where it has to make room, where nobody
// reads it for long, and where something of it cannot be read any more. Whoever feeds or
// reads one has acquired it, and releases it.
//
// # What must hold
//
//   - A snapshot is whole, and at the version it names, or there is none. It is never older
//     than what a client of the same view was given before.
//   - Nothing is said not to be there unless a complete view, an apiserver's own word or a
//     watch proves it, and nothing newer was seen; see [Views.Seek] and package records.
//
// # Concurrency
//
// Views, each View and [Pages] are safe for concurrent use; a [Stage] and a [Snapshot] are
// for one goroutine at a time. A view's lock guards its index and orders what goes to the
// disk; nothing but reading an index for the first time is done under it. Locks are taken in
// the order evictions, view, views, records: nobody waits for a view's lock who holds that of all
// views, or of records, and no hook is called under any of these three.
package view
