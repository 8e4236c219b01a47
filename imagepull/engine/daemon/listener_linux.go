package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// listener returns the ID of the process that listens at a socket.
func listener(ctx context.Context, socket string) (int32, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var peerErr error
	if err := raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if peerErr != nil {
		return 0, os.NewSyscallError("getsockopt(SO_PEERCRED)", peerErr)
	}
	if peer.Pid == 0 {
		return 0, fmt.Errorf("the process that listens at %s is in another process namespace", socket)
	}
	info, err := os.Stat(fmt.Sprintf("/proc/%d", peer.Pid))
	if err != nil {
		return 0, err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid // of the process that has the ID now
	if owner != peer.Uid || owner != 0 && int(owner) != os.Geteuid() {
		return 0, errors.New("the process that listens at " + socket + " is not root's")
	}
	return peer.Pid, nil
}
