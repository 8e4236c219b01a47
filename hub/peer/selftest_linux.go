package peer

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// SelfTest checks whether peers can be identified on this machine, with a connection to
// itself and a look at other processes. Its error names what is missing.
func (p *Peers) SelfTest() error {
	if err := p.findSelf(); err != nil {
		return err
	}
	return checkOthersReadable(p.procs.root)
}

// findSelf identifies this process at the other end of a connection to itself.
func (p *Peers) findSelf() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("connect to itself: %w", err)
	}
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String()) //nolint:noctx // to itself, on loopback
	if err != nil {
		return fmt.Errorf("connect to itself: %w", err)
	}
	defer dialed.Close()
	local, remote := addrPort(dialed.RemoteAddr()), addrPort(dialed.LocalAddr())
	s, err := p.find(local, remote)
	if err != nil {
		return fmt.Errorf("ask the kernel for a socket's owner (netlink, sock_diag): %w%s", err, netlinkHint(err))
	}
	if !s.isConnected() || s.inode == 0 || s.uid != uint32(os.Geteuid()) {
		return fmt.Errorf("the kernel says of a socket of this process: found %t, state %d, user %d, inode %d", s.found, s.state, s.uid, s.inode)
	}
	if err := p.connected(dialed.(*net.TCPConn)); err != nil {
		return fmt.Errorf("ask the kernel for the state of an open connection: %w", err)
	}
	own := p.procs.newSearch(s)
	own.in(os.Getpid())
	if len(own.holders[s.inode]) != 1 {
		return fmt.Errorf("%s does not tell which sockets this process holds", p.procs.root)
	}
	return own.holders[s.inode][0].err
}

func netlinkHint(err error) string {
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, fs.ErrPermission) {
		return "; the unit's RestrictAddressFamilies= has to have AF_NETLINK"
	}
	return "; the kernel needs CONFIG_INET_DIAG, or its module inet_diag"
}

// checkOthersReadable checks that this process can see the open files of other processes.
// If it has the capabilities and sees some, those that a security module shields do not
// matter.
func checkOthersReadable(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("look into other processes: %w", err)
	}
	seen, others, denied := 0, 0, error(nil)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		others++
		switch ok, err := isReadable(filepath.Join(root, entry.Name(), "fd")); {
		case errors.Is(err, fs.ErrPermission):
			denied = err
		case ok:
			seen++
		}
	}
	missing := missingCapabilities()
	switch {
	case others == 0 && os.Getpid() != 1:
		return errors.New("look into other processes: none are to be seen: they are hidden by the unit's ProtectProc=, or by how /proc is mounted (hidepid)")
	case denied == nil, seen > 0 && len(missing) == 0:
		return nil
	case len(missing) > 0:
		return fmt.Errorf("look into other processes: %w: this process lacks %s (the unit's CapabilityBoundingSet=, or a user other than root)", denied, strings.Join(missing, " and "))
	default:
		return fmt.Errorf("look into other processes: %w: a security module (AppArmor, SELinux) forbids it", denied)
	}
}

// isReadable reports whether an open file of a process can be seen, given its fd folder. A
// kernel thread has none.
func isReadable(dir string) (bool, error) {
	files, err := os.ReadDir(dir)
	if err != nil || len(files) == 0 {
		return false, err
	}
	_, err = os.Readlink(filepath.Join(dir, files[0].Name()))
	return err == nil, err
}

// missingCapabilities returns which of the capabilities that it takes to look into other
// processes the calling thread does not have.
func missingCapabilities() []string {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	_ = unix.Capget(&header, &have[0]) // on failure, all are missing
	var missing []string
	if have[0].Effective&(1<<unix.CAP_SYS_PTRACE) == 0 {
		missing = append(missing, "CAP_SYS_PTRACE")
	}
	if have[0].Effective&(1<<unix.CAP_DAC_READ_SEARCH) == 0 {
		missing = append(missing, "CAP_DAC_READ_SEARCH")
	}
	return missing
}
