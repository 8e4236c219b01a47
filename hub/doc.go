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
// # Wiring
//
// [New] constructs each part from those before it: the way to the apiservers (cloud.go), the cache, what an owner may do with pods
// (upgrades.go), what clients read otherwise (transforms.go), the proxy, what is told of all this (state.go, page.go), and the ports
// last. Two parts that need each other are held by a third, which connects them while it runs: see upgrades.run. The hub is its own client
// from the start, since the in-process listener needs no server before it is used.
//
// # Life cycle
//
// [config.Options] are the flags, [config.Options.Config] checks them, [New] reads files and
// binds ports, [Hub.Run] serves until its context ends. None of them needs the cloud. On
// shutdown, watches end cleanly, other requests get the grace period, and then connections are
// closed.
package hub
