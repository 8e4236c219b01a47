// Package credentials keeps the node's credentials current: it reads them at the start
// ([Source.Load]), notices when their files change ([Node.Run]), and gets the node a
// certificate of its own where --bootstrap-file asks for one ([Node.Enroll]).
//
// The order is [Open], Load, then a upstream.Upstream with what was loaded, [New], Enroll, Run.
// Run blocks until its context ends; a Node is safe for concurrent use.
package credentials
