// Package limits keeps slow clients from using up the hub: what waits for its client
// holds memory, and callers with credentials of their own need none that are valid to
// get there.
//
//   - [WithBodyTimeout] ends a request whose body stops arriving.
//   - [Eviction] bounds how many requests wait at the same time: [AddBody] counts bodies
//     that are on the way, [NewResponseWriter] counts writes that the client has yet to
//     read. Where there are too many, those that have waited longest are evicted.
//   - [BufferBody] keeps a small body, so that its request can be sent again.
//
// A limit ends a wait through the deadlines of the client's connection or HTTP/2 stream,
// and only once the limit is exceeded: see timedBody. Everything here is safe for
// concurrent use, except that one request's body and response are used by that request
// alone, as net/http has it.
package limits
