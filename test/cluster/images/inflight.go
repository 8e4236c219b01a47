package images

import (
	"encoding/binary"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// inFlightLimit bounds the bytes of a connection that the client has not read, in the
// kernel's buffers of both ends. A client that is killed loses these bytes, although they
// count as served. Without the limit, megabytes could wait in the receive buffer of a client
// that gets no CPU, and a test that counts bytes would measure the machine's speed.
const inFlightLimit = 32 << 10

// inFlightPeriod is the time between two looks at the bytes in flight.
const inFlightPeriod = 100 * time.Microsecond

// limitListener accepts connections that send no faster than their clients read.
type limitListener struct{ net.Listener }

func (l limitListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &limitedConn{conn.(*net.TCPConn)}, nil
}

// limitedConn is a connection with at most inFlightLimit bytes in flight.
type limitedConn struct{ *net.TCPConn }

func (c *limitedConn) Write(p []byte) (int, error) {
	const piece = inFlightLimit / 2
	for sent := 0; ; {
		for c.unsent()+c.unread() > inFlightLimit-piece {
			time.Sleep(inFlightPeriod)
		}
		n, err := c.TCPConn.Write(p[sent:min(sent+piece, len(p))])
		sent += n
		if err != nil || sent == len(p) {
			return sent, err
		}
	}
}

// unsent counts the bytes that the client's kernel has not acknowledged. It is 0 once the
// connection is closed or reset.
func (c *limitedConn) unsent() (n int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil && info.State != unix.BPF_TCP_CLOSE {
			n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		}
	})
	return n
}

// unread counts the bytes that the client's kernel has and the client has not read. It is
// 0 for a client that is not in this network namespace.
func (c *limitedConn) unread() int {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Sendto(fd, c.diagRequest(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0
	}
	answer := make([]byte, 1<<10)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	const queueAt = unix.SizeofNlMsghdr + 56 // idiag_rqueue of struct inet_diag_msg
	if err != nil || n < queueAt+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.SOCK_DIAG_BY_FAMILY {
		return 0
	}
	return int(binary.NativeEndian.Uint32(answer[queueAt:]))
}

// diagRequest asks the kernel for the client's socket: a struct inet_diag_req_v2, see
// sock_diag(7).
func (c *limitedConn) diagRequest() []byte {
	client, server := c.RemoteAddr().(*net.TCPAddr).AddrPort(), c.LocalAddr().(*net.TCPAddr).AddrPort()
	const size = unix.SizeofNlMsghdr + 56
	q := binary.NativeEndian.AppendUint32(nil, size)
	q = binary.NativeEndian.AppendUint16(q, unix.SOCK_DIAG_BY_FAMILY)
	q = binary.NativeEndian.AppendUint16(q, unix.NLM_F_REQUEST)
	q = append(q, make([]byte, 8)...) // sequence number and port: the kernel fills them in
	q = append(q, family(client), unix.IPPROTO_TCP, 0, 0)
	q = binary.NativeEndian.AppendUint32(q, ^uint32(0)) // in any state
	q = binary.BigEndian.AppendUint16(q, client.Port())
	q = binary.BigEndian.AppendUint16(q, server.Port())
	for _, addr := range []netip.Addr{client.Addr().Unmap(), server.Addr().Unmap()} {
		q = append(q, addr.AsSlice()...)
		q = append(q, make([]byte, 16-addr.BitLen()/8)...)
	}
	q = binary.NativeEndian.AppendUint32(q, 0)             // on any interface
	return binary.NativeEndian.AppendUint64(q, ^uint64(0)) // without a cookie
}

func family(addr netip.AddrPort) byte {
	if addr.Addr().Unmap().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
