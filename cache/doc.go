// Package cache keeps what a node's clients read while the cloud can be reached,
// and answers from it while the cloud is away.
//
// A [Cache] is an http.RoundTripper between the proxy and its upstream. Every
// request goes upstream first; the cache looks at the answer while it passes.
// Only a request that reached no apiserver is answered here.
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
// # How a watch goes on
//
// The body of a watch is a stream of ours. When its upstream breaks off, it is
// held open, and opened again upstream from the version that its client has got
// to. Where an apiserver has forgotten that version, the view is listed once for
// all its watches, and the difference becomes events: what has come and gone meanwhile
// is in none of them. Where that is not possible, the client is told to list again.
//
// # The node's own status
//
// What the node writes of its own status while the cloud is away is kept by package
// overlay, and laid over the cached objects wherever they are read: withStatus does that
// to a list and to initial events, showStatus to a watch that is held. When the cloud is
// back, settleStatus puts right what the cloud did not get, after a minute, or in the next
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
// A Cache is safe for concurrent use. A view's lock guards its index and orders
// what goes to the disk; nothing but reading an index for the first time is done
// under it. Locks are taken in the order view, views, records.
package cache
