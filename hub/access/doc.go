// Package access decides who may use the hub's ports, and as whom.
//
//   - [Callers] lends the node's identity on the plain proxy port to the node's own programs
//     only: those of some users, outside of containers. It looks at a connection once.
//   - [APICallers] keeps containers from the node's HTTP API on loopback.
//   - [CheckCSRF] lends no identity to web pages in a browser on the node.
//   - [Listener] bounds the connections of a port and reserves a quarter of them for the
//     node's own programs; [Connections] has the metrics of all ports.
//   - [PeerOf] names the other end of a connection, so that callers can take turns.
//
// Everything here is safe for concurrent use. What is refused is counted, and logged once a
// minute for each caller.
package access
