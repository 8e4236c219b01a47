// Package access decides who may use the hub's ports, and as whom.
//
//   - [Callers] lends the node's identity on the plain proxy port only to the node's own
//     programs: those of some users, outside of containers. It checks a connection once.
//   - [APICallers] keeps containers from the node's HTTP API on loopback.
//   - [CheckCSRF] denies the node's identity to web pages in a browser on the node.
//   - [Listener] limits the connections of an address, which may share a [Budget] with others, and
//     reserves a quarter for the node's own programs; [ConnState] bounds what a connection sends
//     before its first request, or has it take what is more from a pool of the Budget, and lets those
//     that are not the node's take turns by then. After
//     [Refused], a peer that has too many requests refused is read slowly. [Connections] has the
//     metrics of all ports.
//   - [PeerOf] names the other end of a connection, for fair queueing, as do the limits above: by its
//     address, its user, or its pod.
//
// Everything here is safe for concurrent use. Refusals are counted, and logged once a minute
// for each caller.
package access
