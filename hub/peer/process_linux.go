package peer

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// in adds the process to each socket that it holds. A process that has ended, or that this process
// may not look into, holds none.
//
// It reads everything through one open folder: if the process ends, its PID may be reused,
// but the folder is not.
func (s *search) in(pid int) {
	dir, err := os.OpenRoot(filepath.Join(s.root, strconv.Itoa(pid)))
	if err != nil {
		return
	}
	defer dir.Close()
	if network, _ := dir.Readlink("ns/net"); network != s.network || !s.users[realUser(dir)] {
		return
	}
	files, err := dir.Open("fd")
	if err != nil {
		return
	}
	defer files.Close()
	var found *process
	const atATime = 1024 // a process may have millions
	for {
		names, err := files.Readdirnames(atATime) // fails at the end, or if the process has ended
		for _, name := range names {
			inode, ok := socketAt(int(files.Fd()), name)
			if !ok {
				continue
			}
			have, wanted := s.holders[inode]
			if !wanted || len(have) > 0 && have[len(have)-1].pid == pid {
				continue // in the second case, the process holds it twice
			}
			if found == nil {
				found = describeProcess(dir, pid)
			}
			s.holders[inode] = append(have, found)
		}
		if err != nil {
			return
		}
	}
}

// realUser returns the real user of a process, or one that no process has. The owner of its folder does
// not tell: that is the effective user, or root where the process must not be traced.
func realUser(dir *os.Root) uint32 {
	const nobody = ^uint32(0)
	text, err := dir.ReadFile("status")
	if err != nil {
		return nobody
	}
	for line := range strings.Lines(string(text)) {
		if ids, ok := strings.CutPrefix(line, "Uid:\t"); ok {
			id, _, _ := strings.Cut(ids, "\t")
			if uid, err := strconv.ParseUint(id, 10, 32); err == nil {
				return uint32(uid)
			}
		}
	}
	return nobody
}

// everywhere looks into all processes.
func (s *search) everywhere() error {
	all, err := os.Open(s.root)
	if err != nil {
		return err
	}
	defer all.Close()
	names, err := all.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			s.in(pid)
		}
	}
	if err != nil {
		return fmt.Errorf("list processes in %s: %w", s.root, err)
	}
	return nil
}

// socketAt returns the inode of the socket to which an entry of /proc/PID/fd links, as
// socket:[INODE].
func socketAt(files int, name string) (uint32, bool) {
	var buffer [32]byte
	n, err := unix.Readlinkat(files, name, buffer[:]) // a scan does this for each open file: os.Readlink allocates
	if err != nil {
		return 0, false
	}
	number, ok := strings.CutPrefix(string(buffer[:n]), "socket:[")
	if !ok {
		return 0, false
	}
	inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 32)
	return uint32(inode), err == nil
}

func describeProcess(dir *os.Root, pid int) *process {
	p := &process{pid: pid}
	text, err := dir.ReadFile("cgroup")
	if err == nil {
		p.cgroups, err = parseCgroups(string(text))
	}
	if err == nil {
		err = notExiting(dir) // after the control groups: see there
	}
	if err != nil {
		p.err = fmt.Errorf("read control groups of process %d: %w", pid, err)
	}
	comm, _ := dir.ReadFile("comm") // informational
	p.comm = strings.TrimSuffix(string(comm), "\n")
	return p
}

// flagExiting is PF_EXITING of linux/sched.h.
const flagExiting = 0x4

// notExiting returns an error if the process's first thread had begun to exit. From then
// on, control groups of version 1 show the process in the root group, which is the host's,
// while it may still show its open files, and its other threads may live on. A thread that
// has begun to exit never returns, so checking afterwards is enough.
func notExiting(dir *os.Root) error {
	text, err := dir.ReadFile("stat")
	if err != nil {
		return err
	}
	const flags = 6 // index among the fields after the name, which may contain anything
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) <= flags {
		return fmt.Errorf("its stat has %d fields", len(fields))
	}
	bits, err := strconv.ParseUint(string(fields[flags]), 10, 64)
	if err != nil {
		return fmt.Errorf("flags in its stat: %w", err)
	}
	if bits&flagExiting != 0 {
		return errExiting
	}
	return nil
}

func ownNetwork(root string) string {
	network, _ := os.Readlink(filepath.Join(root, "self", "ns", "net"))
	return network
}

func ownCgroups(root string) ([]membership, error) {
	text, err := os.ReadFile(filepath.Join(root, "self", "cgroup"))
	if err != nil {
		return nil, err
	}
	return parseCgroups(string(text))
}
