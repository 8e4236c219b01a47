// Package discovery keeps an apiserver's discovery documents: its version, the groups,
// versions and resources that it serves, and their schemas. Clients read them when they
// start, kubectl before each command, and cannot do without.
//
// These are not resources: there is nothing to watch, and no version but an ETag. So each
// is kept as it came, for the user who read it, by path and Accept header, and by the
// hash in a schema's URL; apiservers ignore the rest of the query. A client that asks
// with another Accept header gets what another one of the same user has read, if its
// media type is one that it accepts.
//
// # Conditional requests
//
// kubectl caches discovery itself, and asks whether it has changed. The apiserver's 304
// has the current ETag, but not the content: offline a client with that ETag gets 304
// again, and a client without it gets what was read before, if anything was.
//
// # Bounds
//
// Answers are kept up to 1 MiB each, eight of a user and path that differ in the Accept
// header, and 1,000 and 16 MiB in all by default; beyond that
// the tenant with the most loses first what was read longest ago; see package quota. An
// answer that has not changed is written once a day.
//
// # Life cycle
//
// Open reads the list of what is kept, Keep is called online, Answer offline. A Cache is
// safe for concurrent use.
package discovery
