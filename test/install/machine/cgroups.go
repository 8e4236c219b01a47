package machine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/edgehub-io/edgehub/test/cluster"
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

// removeGroups kills what is left in them when the machine has ended, and removes them.
func removeGroups(machine string) error {
	all, err := Hierarchies()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	for _, h := range all {
		errs = append(errs, cluster.RemoveGroup(ctx, filepath.Join(h.Path, groupPrefix+machine)))
	}
	return errors.Join(errs...)
}
