package liveness

import (
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tcpBacklog is Network.Backlog for a TCP connection.
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
		_ = raw.Control(func(fd uintptr) { // fails on a closed connection, which nobody checks any more
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			if err == nil {
				acked, waiting = info.Bytes_acked, info.Unacked > 0 || info.Notsent_bytes > 0
			}
		})
		return acked, waiting
	}
}

// setUserTimeout makes the kernel give up a connection when data sent on it has not been
// acknowledged for d. The kernel's own limit is about 15 minutes, and it sends no keep-alives
// while data is in flight.
func setUserTimeout(raw syscall.RawConn, d time.Duration) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
	return errors.Join(err, failed)
}
