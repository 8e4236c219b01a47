package hub

import (
	"context"
	"fmt"
	"net"
)

// peerOf names the other end of a request's connection, so that peers can take turns: by
// its address, or, on the node's own network, by its user, since there a program may
// choose among 16 million addresses. The name is empty where the connection is not known.
//
// Programs of one user on the node's own network have the same name: pods on the host's
// network that run as root are one peer. So are pods whose addresses something on the way
// replaces by its own. And a program that may add addresses to its pod's network can be
// as many peers as the node's routes let through.
func peerOf(ctx context.Context) string {
	conn, ok := ctx.Value(connKey{}).(*knownConn)
	if !ok {
		return ""
	}
	conn.named.Do(func() { conn.name = conn.newName() })
	return conn.name
}

func (k *knownConn) newName() string {
	if k.peers != nil {
		if uid, ok := k.peers.Owner(k.Conn); ok {
			return fmt.Sprint("user ", uid)
		}
	}
	remote, ok := k.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	address := remote.AddrPort().Addr().Unmap()
	if address.IsLoopback() {
		return "loopback"
	}
	return address.WithZone("").String()
}
