package access

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/edgehub-io/edgehub/hub/peer"
)

// PeerOf names the client of a request, for fair queueing: by its address or, on the host network,
// by its user, since a program there may choose among 16 million loopback addresses. A pod there whose user
// is one of the node's is named by its UID, so that the node's own programs, kube-proxy and others do not count with it.
// The name is empty if the connection is unknown.
//
// Limits: programs of one other user on the host network are one peer, as are pods behind a source NAT. A
// program that may add addresses to its pod's network can appear as many peers.
func PeerOf(ctx context.Context) string {
	conn, ok := ctx.Value(connKey{}).(*clientConn)
	if !ok {
		return ""
	}
	return conn.name()
}

// unfound is the name of all programs of the node's users of which it is not known, or not yet, in which pod they
// are. A program can see to it that it is never found.
const unfound = "programs that were not found"

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
	if err == nil {
		return true, ""
	}
	refusal, ok := errors.AsType[*peer.Refusal](err)
	switch {
	case ok && refusal.Reason == peer.InContainer:
		return false, containerName(refusal.In.Pod, refusal.UID)
	case ok && refusal.Reason == peer.OtherUser:
		return false, userName(refusal.UID)
	case c.IsSlow(conn):
		return false, unfound
	}
	return false, c.peerOf(tcp)
}

// Stranger is an Identify for ports where nobody is the node.
func (c *Callers) Stranger(conn net.Conn) (isNode bool, peerName string) {
	tcp, ok := conn.(peer.Conn)
	if !ok {
		return false, ""
	}
	if !c.IsSlow(conn) {
		return false, c.peerOf(tcp)
	}
	pod, err := c.peers.Pod(tcp)
	if err != nil {
		return false, unfound
	}
	uid, _ := c.peers.Owner(tcp)
	return false, containerName(pod, uid)
}

// IsSlow reports whether Stranger has to look for the process of a connection: its user is one of the node's.
func (c *Callers) IsSlow(conn net.Conn) bool {
	tcp, ok := conn.(peer.Conn)
	if !ok || c.peers == nil {
		return false
	}
	uid, ok := c.peers.Owner(tcp)
	return ok && c.peers.IsNodes(uid)
}

// containerName returns the name of a peer in a pod, if it is in one.
func containerName(pod string, uid uint32) string {
	if pod == "" {
		return userName(uid)
	}
	return "pod " + pod
}

func userName(uid uint32) string { return fmt.Sprint("user ", uid) }

// nameOf returns the name that a connection's limits have, and otherwise, such as for the node's own, that of its user.
func (c *Callers) nameOf(conn peer.Conn) string {
	if limited, ok := conn.(*limitedConn); ok && limited.peer != "" {
		return limited.peer
	}
	return c.peerOf(conn)
}

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
	if address.IsLoopback() { // of which it may have any
		return "loopback"
	}
	return address.WithZone("").String()
}
