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

// scanProcess adds the process to each socket in holders that it holds. A process that has
// ended, or that this process may not look into, holds none.
//
// It reads everything through one open folder: if the process ends, its PID may be reused,
// but the folder is not.
func scanProcess(root string, pid int, holders map[uint32][]*process) {
	dir, err := os.OpenRoot(filepath.Join(root, strconv.Itoa(pid)))
	if err != nil {
		return
	}
	defer dir.Close()
	files, err := dir.Open("fd")
	if err != nil {
		return
	}
	defer files.Close()
	names, _ := files.Readdirnames(-1) // fails if the process has ended
	var found *process
	for _, name := range names {
		inode, ok := socketAt(int(files.Fd()), name)
		if !ok {
			continue
		}
		have, wanted := holders[inode]
		if !wanted || len(have) > 0 && have[len(have)-1].pid == pid {
			continue // in the second case, the process holds it twice
		}
		if found == nil {
			found = describeProcess(dir, pid)
		}
		holders[inode] = append(have, found)
	}
}

// scanAll calls scanProcess for all processes.
func scanAll(root string, holders map[uint32][]*process) error {
	all, err := os.Open(root)
	if err != nil {
		return err
	}
	defer all.Close()
	names, err := all.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			scanProcess(root, pid, holders)
		}
	}
	if err != nil {
		return fmt.Errorf("list processes in %s: %w", root, err)
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

func ownCgroups(root string) ([]membership, error) {
	text, err := os.ReadFile(filepath.Join(root, "self", "cgroup"))
	if err != nil {
		return nil, err
	}
	return parseCgroups(string(text))
}
