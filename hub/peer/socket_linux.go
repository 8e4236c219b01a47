package peer

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// answerTimeout bounds the wait for the kernel, in seconds. The kernel answers before
// sendto returns.
const answerTimeout = 1

// socketFinder returns a function that finds the socket that is bound to remote and connected to local. It
// is safe for concurrent use: lookups wait for each other, since one takes a few microseconds, and hundreds
// of them at once, as in a flood of connections, would take a thread each.
func socketFinder() func(local, remote netip.AddrPort) (socket, error) { return (&diagnosis{}).find }

// diagnosis looks sockets up, through a netlink socket that it keeps.
type diagnosis struct {
	mu       sync.Mutex
	netlink  *os.File // nil: not open
	sequence uint32   // of the last request, so that replies can be matched
}

func (d *diagnosis) find(local, remote netip.AddrPort) (socket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.netlink == nil {
		var err error
		if d.netlink, err = openNetlink(); err != nil {
			return socket{}, err
		}
	}
	s, err := d.askLocked(local, remote)
	if err != nil { // a reply may still come, which the next lookup must not read
		_ = d.netlink.Close() // nothing was written
		d.netlink = nil
	}
	return s, err
}

func openNetlink() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, os.NewSyscallError("socket(AF_NETLINK)", err)
	}
	netlink := os.NewFile(uintptr(fd), "sock_diag")
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: answerTimeout}); err != nil {
		_ = netlink.Close() // unused
		return nil, os.NewSyscallError("setsockopt", err)
	}
	return netlink, nil
}

func (d *diagnosis) askLocked(local, remote netip.AddrPort) (socket, error) {
	fd := int(d.netlink.Fd())
	d.sequence++
	if err := unix.Sendto(fd, diagRequest(remote, local, d.sequence), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
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
	return parseDiag(reply[:n], remote, local, d.sequence)
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
