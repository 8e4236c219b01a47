package machine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// groupPrefix and a machine's name are the name of its control group in each hierarchy of
// the host.
const groupPrefix = "edgehub-"

// Hierarchy is one of control groups: Options is what it is mounted with, empty for
// version 2.
type Hierarchy struct{ Path, Options string }

// Hierarchies are the host's.
func Hierarchies() ([]Hierarchy, error) {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var all []Hierarchy
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line) // device, path, type, options
		switch {
		case len(fields) < 4:
		case fields[2] == "cgroup2":
			all = append(all, Hierarchy{Path: fields[1]})
		case fields[2] == "cgroup":
			all = append(all, Hierarchy{fields[1], controllers(fields[3])})
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no control groups are mounted")
	}
	return all, nil
}

// controllers are what is left of a mount's options without those of every mount.
func controllers(options string) string {
	var words []string
	for word := range strings.SplitSeq(options, ",") {
		switch word {
		case "rw", "ro", "relatime", "noatime", "nosuid", "nodev", "noexec", "xattr":
		default:
			words = append(words, word)
		}
	}
	if len(words) == 1 && strings.HasPrefix(words[0], "name=") {
		return "none," + words[0]
	}
	return strings.Join(words, ",")
}

// makeGroups makes the machine's groups.
func makeGroups(machine string) error {
	all, err := Hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		group := filepath.Join(h.Path, groupPrefix+machine)
		if err := os.MkdirAll(group, 0o755); err != nil {
			return err
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(h.Path, file))
			if err != nil || h.Options == "" {
				continue // another hierarchy
			}
			if err := os.WriteFile(filepath.Join(group, file), value, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// joinGroups moves a process into them.
func joinGroups(machine string, pid int) error {
	all, err := Hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if err := os.WriteFile(filepath.Join(h.Path, groupPrefix+machine, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// removeGroups ends what is left of the machine, and removes its groups. A group is busy until its
// last process is gone.
func removeGroups(machine string) error {
	all, err := Hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		group := filepath.Join(h.Path, groupPrefix+machine)
		for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(50 * time.Millisecond) {
			err := errors.Join(killGroup(group), removeGroup(group))
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return err
			}
		}
	}
	return nil
}

// killGroup kills the processes in a group and in those below it. It is called until there are none:
// a process may have made another meanwhile.
func killGroup(group string) error {
	return filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.Name() != "cgroup.procs" {
			return err
		}
		pids, err := os.ReadFile(path)
		for field := range strings.FieldsSeq(string(pids)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 { // 0: of another namespace
				_ = unix.Kill(pid, unix.SIGKILL) // it may be gone
			}
		}
		return err
	})
}

func removeGroup(group string) error {
	entries, err := os.ReadDir(group)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroup(filepath.Join(group, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
