// Package discovery stores an apiserver's discovery documents: its version, the groups,
// versions and resources that it serves, and their schemas. Clients read them when they start,
// kubectl before each command, and cannot work without them.
//
// They are not resources: they cannot be watched, and have ETags instead of versions. So they
// are stored as they came, by user, path and Accept header, and by the hash in a schema's
// URL; apiservers ignore the rest of the query. A client with another Accept header gets
// what the same user has read with a different one, if it accepts that media type.
//
// # Conditional requests
//
// kubectl caches discovery itself, and asks whether it has changed. The apiserver's 304 has the
// current ETag, but no content. Offline, a client with that ETag gets 304 again, and a client
// without it gets the content that was read last, if any.
//
// # Bounds
//
// An answer may have 1 MiB, and a user eight of them per path, with different Accept headers.
// All answers together are bounded by 1,000 and 16 MiB by default; beyond that, the tenant with
// the most loses the least recently read ones first; see package quota. An unchanged answer is
// written once a day.
//
// # Life cycle
//
// Open reads what is stored, Keep is called online, Answer offline. A Cache is safe for
// concurrent use.
package discovery
