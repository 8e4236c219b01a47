// Package hub puts the node's hub together: configuration, credentials, the
// proxy ports, and the node's HTTP API.
//
//	10261  plain HTTP on loopback ─┐
//	10268  TLS ────────────────────┼─▶ proxy.Proxy ─▶ cache.Cache ─▶ upstream.Upstream ─▶ apiservers
//	in process ────────────────────┘
//	   ▲
//	   └── ota (10267): pods of this node, and their upgrade
//
// Requests that the hub makes itself take the same way through the proxy as the
// node's clients', with the node's identity.
//
// # Life cycle
//
// [Options] are flags, [Options.Config] checks them, [New] reads files and
// binds ports, [Hub.Run] serves until its context ends. None of them needs the
// cloud. On the way out watches are ended cleanly, other requests get the grace
// period, and then connections are closed.
package hub
