package peer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// scanProcess adds the process to each socket in holders that it holds. One that is gone,
// or may not be looked into, holds none.
//
// All is read through one open folder: should the process end, its number may be
// another's, but the folder is not.
func scanProcess(root string, pid int, holders map[uint32][]*process) {
	dir, err := open(unix.AT_FDCWD, filepath.Join(root, strconv.Itoa(pid)), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer unix.Close(dir)
	scanFiles(dir, pid, holders)
}

// scanAll is scanProcess for all processes.
func scanAll(root string, holders map[uint32][]*process) error {
	all, err := open(unix.AT_FDCWD, root, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("open %s: %w", root, err)
	}
	defer unix.Close(all)
	err = eachEntry(all, func(name string) {
		pid, err := strconv.Atoi(name)
		if err != nil {
			return // no process
		}
		dir, err := open(all, name, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return
		}
		defer unix.Close(dir)
		scanFiles(dir, pid, holders)
	})
	if err != nil {
		return fmt.Errorf("list processes in %s: %w", root, err)
	}
	return nil
}

func scanFiles(dir, pid int, holders map[uint32][]*process) {
	files, err := open(dir, "fd", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer unix.Close(files)
	var found *process
	_ = eachEntry(files, func(name string) { // fails when the process has ended
		inode, ok := socketAt(files, name)
		if !ok {
			return
		}
		have, wanted := holders[inode]
		if !wanted || len(have) > 0 && have[len(have)-1].pid == pid {
			return // or it is held twice
		}
		if found == nil {
			found = describeProcess(dir, pid)
		}
		holders[inode] = append(have, found)
	})
}

// socketAt is the inode of the socket that an entry of /proc/PID/fd links to:
// socket:[INODE].
func socketAt(files int, name string) (uint32, bool) {
	var buffer [32]byte
	n, err := unix.Readlinkat(files, name, buffer[:])
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

func describeProcess(dir, pid int) *process {
	p := &process{pid: pid}
	text, err := readAt(dir, "cgroup")
	if err == nil {
		p.cgroups, err = parseCgroups(text)
	}
	if err == nil {
		err = notExiting(dir) // last: see there
	}
	if err != nil {
		p.err = fmt.Errorf("read control groups of process %d: %w", pid, err)
	}
	comm, _ := readAt(dir, "comm") // only for people
	p.comm = strings.TrimSuffix(comm, "\n")
	return p
}

// flagExiting is PF_EXITING of linux/sched.h.
const flagExiting = 0x4

// notExiting returns an error if the process's first thread had begun to exit. From then
// on, control groups of version 1 show it in the root group, which is the host's, though
// for a moment it still shows its open files, and its other threads may live on. A thread
// that has begun never stops, which is why it is enough to look afterwards.
func notExiting(dir int) error {
	text, err := readAt(dir, "stat")
	if err != nil {
		return err
	}
	const flags = 6 // of the fields after the name, which may contain anything
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) <= flags {
		return fmt.Errorf("its stat has %d fields", len(fields))
	}
	switch bits, err := strconv.ParseUint(fields[flags], 10, 64); {
	case err != nil:
		return fmt.Errorf("flags in its stat: %w", err)
	case bits&flagExiting != 0:
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

// maxText is more than any /proc/PID/cgroup has, in bytes: a path has 4096 at most,
// and there are a dozen hierarchies.
const maxText = 128 << 10

func readAt(dir int, name string) (string, error) {
	fd, err := open(dir, name, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err == nil && len(text) > maxText {
		err = errors.New("it is longer than any is")
	}
	return string(text), err
}

func open(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func eachEntry(dir int, do func(name string)) error {
	buffer := make([]byte, 8<<10)
	var names []string
	for {
		n, err := unix.ReadDirent(dir, buffer)
		if err != nil || n <= 0 {
			return err
		}
		_, _, names = unix.ParseDirent(buffer[:n], -1, names[:0])
		for _, name := range names {
			do(name)
		}
	}
}
