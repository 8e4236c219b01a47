package engine

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"syscall"
	"time"
)

// lookTimeout is for a connection on this machine that is only asked who is there.
const lookTimeout = 5 * time.Second

// visible is a folder of containerd as it can be looked at from here: containerd may
// live in a mount namespace of its own.
func (e *Engine) visible(ctx context.Context, folder string) string {
	pid, err := peer(ctx, e.opts.Address)
	if err != nil {
		return folder
	}
	return filepath.Join(fmt.Sprintf("/proc/%d/root", pid), folder)
}

// roomAt looks at the file system of a visible folder.
func roomAt(folder string) (room, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil {
		return room{}, fmt.Errorf("look at %s: %w", folder, err)
	}
	block := int64(s.Bsize) //nolint:unconvert // it is an int32 on machines of 32 bits
	return room{
		id: s.Fsid.X__val, free: int64(s.Bavail) * block, total: int64(s.Blocks) * block,
		inodes: int64(s.Ffree), allInodes: int64(s.Files),
	}, nil
}

// peer is the process that listens at a socket.
func peer(ctx context.Context, socket string) (pid int32, err error) {
	dialer := net.Dialer{Timeout: lookTimeout}
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
