// Package paths keeps what an apiserver says of itself: its version, which groups,
// versions and resources it serves, and their schemas. Clients ask for it when they
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
// kubectl keeps discovery itself, and asks whether it has changed. The apiserver's 304
// tells which ETag is the current one, though not what it stands for: offline it is
// answered with 304 again, and if anything was read before, a client without that ETag
// gets what was.
//
// # Bounds
//
// Answers are kept up to 1 MiB each, eight of a user and path that differ in the Accept
// header, and 1,000 and 16 MiB in all by default; beyond that
// the tenant with the most loses first what was read longest ago, as package quota says. An
// answer that has not changed is written once a day.
//
// # Life cycle
//
// Open reads the list of what is kept, Keep is called online, Answer offline. A Paths is
// safe for concurrent use.
package paths
