// Package credentials keeps the node's credentials current: it reads them at the start
// ([Source.Load]), follows changes of their files ([Node.Run]), and with --bootstrap-file
// obtains a certificate for the hub.
//
// The order is [Open], Load, an upstream.Upstream with the loaded credentials, [New], Run. Run blocks until its context ends. A Node is safe for concurrent use.
package credentials
