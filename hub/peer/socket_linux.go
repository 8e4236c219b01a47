package peer

import (
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// answerTimeout bounds the wait for the kernel, in seconds. The kernel answers before
// sendto returns.
const answerTimeout = 1

var sequence atomic.Uint32 //nolint:gochecknoglobals // numbers the requests, so that replies can be matched

// findSocket finds the socket that is bound to remote and connected to local.
func findSocket(local, remote netip.AddrPort) (socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return socket{}, os.NewSyscallError("socket(AF_NETLINK)", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: answerTimeout}); err != nil {
		return socket{}, os.NewSyscallError("setsockopt", err)
	}
	number := sequence.Add(1)
	if err := unix.Sendto(fd, diagRequest(remote, local, number), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return socket{}, os.NewSyscallError("sendto(sock_diag)", err)
	}
	reply := make([]byte, 4096)
	n, from, err := unix.Recvfrom(fd, reply, 0)
	if err != nil {
		return socket{}, os.NewSyscallError("recvfrom(sock_diag)", err)
	}
	if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
		return socket{}, fmt.Errorf("the reply is from %v, not from the kernel", from)
	}
	return parseDiag(reply[:n], remote, local, number)
}

// stateOf returns the state of a connection of this process.
func stateOf(c syscall.Conn) (tcpState, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var info *unix.TCPInfo
	var infoErr error
	if err := raw.Control(func(fd uintptr) {
		info, infoErr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}); err != nil {
		return 0, err
	}
	if infoErr != nil {
		return 0, os.NewSyscallError("getsockopt(TCP_INFO)", infoErr)
	}
	return tcpState(info.State), nil
}
