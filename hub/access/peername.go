package access

import (
	"context"
	"fmt"
	"net"

	"github.com/edgehub-io/edgehub/hub/peer"
)

// PeerOf names the client of a request, for fair queueing: by its address or, on the host network,
// by its user, since a program there may choose among 16 million loopback addresses. The name is
// empty if the connection is unknown.
//
// Limits: programs of one user on the host network are one peer, as are pods behind a source NAT. A
// program that may add addresses to its pod's network can appear as many peers.
func PeerOf(ctx context.Context) string {
	conn, ok := ctx.Value(connKey{}).(*clientConn)
	if !ok {
		return ""
	}
	return conn.name()
}

// PeerOf is PeerOf of a connection, which it looks up each time.
func (c *Callers) PeerOf(conn net.Conn) string {
	tcp, ok := conn.(peer.Conn)
	if !ok {
		return ""
	}
	if c.peers != nil {
		if uid, ok := c.peers.Owner(tcp); ok {
			return fmt.Sprint("user ", uid)
		}
	}
	remote, ok := tcp.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	address := remote.AddrPort().Addr().Unmap()
	if address.IsLoopback() {
		return "loopback"
	}
	return address.WithZone("").String()
}
