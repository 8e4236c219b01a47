package liveness

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// tcpBacklog is the backlog of network, where conn is a TCP connection.
func tcpBacklog(conn net.Conn) func() (acked uint64, waiting bool) {
	none := func() (uint64, bool) { return 0, false }
	tcp, ok := conn.(syscall.Conn)
	if !ok {
		return none
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return none
	}
	return func() (acked uint64, waiting bool) {
		_ = raw.Control(func(fd uintptr) { // fails on a closed connection, of which nothing is asked
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			if err == nil {
				acked, waiting = info.Bytes_acked, info.Unacked > 0 || info.Notsent_bytes > 0
			}
		})
		return acked, waiting
	}
}
