package access

import (
	"context"
	"errors"
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

// Identify reports whether a connection is the node's, and returns the name of its other end otherwise.
type Identify func(net.Conn) (isNode bool, peer string)

// Identify is an Identify for ports where the node's own programs call. All are the node's if callers
// are not checked.
func (c *Callers) Identify(conn net.Conn) (isNode bool, peerName string) {
	tcp, ok := conn.(peer.Conn)
	if !ok || c.peers == nil {
		return ok, ""
	}
	err := c.peers.Check(tcp)
	if refusal, ok := errors.AsType[*peer.Refusal](err); ok && (refusal.Reason == peer.OtherUser || refusal.Reason == peer.InContainer) {
		return false, userName(refusal.UID) // without another lookup
	}
	if err == nil {
		return true, ""
	}
	return false, c.peerOf(tcp)
}

// Stranger is an Identify for ports where nobody is the node.
func (c *Callers) Stranger(conn net.Conn) (isNode bool, peerName string) {
	tcp, ok := conn.(peer.Conn)
	if !ok {
		return false, ""
	}
	return false, c.peerOf(tcp)
}

func userName(uid uint32) string { return fmt.Sprint("user ", uid) }

func (c *Callers) peerOf(conn peer.Conn) string {
	if c.peers != nil {
		if uid, ok := c.peers.Owner(conn); ok {
			return userName(uid)
		}
	}
	remote, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	address := remote.AddrPort().Addr().Unmap()
	if address.IsLoopback() {
		return "loopback"
	}
	return address.WithZone("").String()
}
