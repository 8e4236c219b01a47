// Package hub connects the parts of the node's hub: credentials, cache, proxy, image pulls and
// the node's HTTP API. The parts do not import each other.
//
//	10261  plain HTTP on loopback ─┐
//	10268  TLS ────────────────────┼─▶ proxy.Proxy ─▶ cache.Cache ─▶ binding.Binding ─▶ upstream.Upstream ─▶ apiservers
//	in process ────────────────────┘
//	   ▲
//	   └── ota (10267): pods of this node and their upgrades
//
// The hub sends its own requests through the proxy as well, over an in-process listener,
// with the node's identity.
//
// What is kept is that of one cluster and one node: see package binding. If the cloud turns out to be another one, [Hub.Run]
// returns an error, and the next New sets everything aside before it opens it.
//
// # Life cycle
//
// [config.Options] are the flags, [config.Options.Config] checks them, [New] reads files and
// binds ports, [Hub.Run] serves until its context ends. None of them needs the cloud. On
// shutdown, watches end cleanly, other requests get the grace period, and then connections are
// closed.
package hub
