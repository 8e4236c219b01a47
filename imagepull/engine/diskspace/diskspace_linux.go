package diskspace

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"syscall"
	"time"
)

// dialTimeout is for a connection on this machine that carries nothing.
const dialTimeout = 5 * time.Second

// Visible returns the path at which this process sees a folder of the process that listens at socket:
// containerd may have its own mount namespace.
func Visible(ctx context.Context, socket, folder string) string {
	pid, err := peer(ctx, socket)
	if err != nil {
		return folder
	}
	return filepath.Join(fmt.Sprintf("/proc/%d/root", pid), folder)
}

// At returns the space of the file system of a visible folder.
func At(folder string) (Space, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil {
		return Space{}, fmt.Errorf("look at %s: %w", folder, err)
	}
	block := int64(s.Bsize) //nolint:unconvert // an int32 on machines with 32 bits
	return Space{
		ID: s.Fsid.X__val, Free: int64(s.Bavail) * block, Total: int64(s.Blocks) * block,
		Inodes: int64(s.Ffree), TotalInodes: int64(s.Files),
	}, nil
}

// peer returns the process that listens at a socket.
func peer(ctx context.Context, socket string) (pid int32, err error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }() // nothing was sent
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var who *syscall.Ucred
	var asked error
	if err := raw.Control(func(fd uintptr) {
		who, asked = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if asked != nil {
		return 0, asked
	}
	return who.Pid, nil
}
