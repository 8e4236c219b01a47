// Package limits keeps slow clients from using up the hub: a request that waits for its client
// holds memory, and the credentials of callers that bring their own are not verified yet.
//
//   - [WithBodyTimeout] ends a request whose body stops arriving.
//   - [Eviction] bounds how many requests wait at the same time: [AddBody] counts bodies
//     that are on the way, [NewResponseWriter] counts writes that the client has yet to
//     read. If there are too many, those that have waited longest are evicted.
//   - [Shares] bounds how many requests are in flight, by tenant and user.
//   - [Costs] bounds what each of many callers costs in a time, such as connections upstream.
//   - [BufferBody] keeps a small body, so that its request can be sent again.
//
// A limit ends a wait through the deadlines of the client's connection or HTTP/2 stream,
// and only once the limit is exceeded: see timedBody. Everything here is safe for
// concurrent use, except one request's body and response, as in net/http.
package limits
