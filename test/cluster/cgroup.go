package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// cgroupRoot holds the control groups of all nodes, in every hierarchy.
const cgroupRoot = "edgehub"

// cgroupTree finds the control group hierarchies of the machine: one per
// controller in version 1, a single one in version 2, and in between, as
// systemd's "hybrid", version 1 for the controllers and a bare version 2.
type cgroupTree struct {
	v1 []string // mount points
	v2 string   // mount point; empty: none
}

func findCgroups() (cgroupTree, error) {
	mounts, err := os.Open("/proc/self/mounts")
	if err != nil {
		return cgroupTree{}, fmt.Errorf("find control groups: %w", err)
	}
	defer mounts.Close()
	var tree cgroupTree
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		fields := strings.Fields(lines.Text()) // device, mount point, type, …
		if len(fields) < 3 {
			continue
		}
		switch fields[2] {
		case "cgroup":
			tree.v1 = append(tree.v1, fields[1])
		case "cgroup2":
			tree.v2 = fields[1]
		}
	}
	if len(tree.v1) == 0 && tree.v2 == "" {
		return cgroupTree{}, errors.New("find control groups: none are mounted")
	}
	return tree, lines.Err()
}

// create makes the group of a node, below cgroupRoot, with every controller
// there is.
func (t cgroupTree) create(node string) error {
	for _, mount := range t.v1 {
		if err := createV1(mount, cgroupRoot, node); err != nil {
			return fmt.Errorf("create control group: %w", err)
		}
	}
	if len(t.v1) > 0 {
		return nil
	}
	if err := createV2(t.v2, cgroupRoot, node); err != nil {
		return fmt.Errorf("create control group: %w", err)
	}
	return nil
}

// createV1 makes nested groups. In the cpuset hierarchy a new group may use no
// processor and no memory until they are assigned.
func createV1(mount string, names ...string) error {
	parent := mount
	for _, name := range names {
		group := filepath.Join(parent, name)
		if err := os.MkdirAll(group, 0o755); err != nil {
			return err
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(parent, file))
			if errors.Is(err, fs.ErrNotExist) {
				continue // another hierarchy
			}
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(group, file), value, 0o644); err != nil {
				return err
			}
		}
		parent = group
	}
	return nil
}

// createV2 makes nested groups, and passes every controller on to each.
func createV2(mount string, names ...string) error {
	parent := mount
	for _, name := range names {
		if err := delegateV2(parent); err != nil {
			return err
		}
		parent = filepath.Join(parent, name)
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return err
		}
	}
	return delegateV2(parent)
}

func delegateV2(group string) error {
	controllers, err := os.ReadFile(filepath.Join(group, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, controller := range strings.Fields(string(controllers)) {
		file := filepath.Join(group, "cgroup.subtree_control")
		if err := os.WriteFile(file, []byte("+"+controller), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// remove kills what lives in the groups of all nodes, or in those of the node that
// is named, and removes them.
func (t cgroupTree) remove(ctx context.Context, node ...string) error {
	var errs []error
	for _, root := range t.roots() {
		errs = append(errs, RemoveGroup(ctx, filepath.Join(append([]string{root}, node...)...)))
	}
	return errors.Join(errs...)
}

// roots are where the groups of all nodes are, in every hierarchy.
func (t cgroupTree) roots() []string {
	mounts := slices.Clone(t.v1)
	if t.v2 != "" {
		mounts = append(mounts, t.v2)
	}
	for i, mount := range mounts {
		mounts[i] = filepath.Join(mount, cgroupRoot)
	}
	return mounts
}

// ListGroup calls found with a control group and the processes in it and in those below,
// if it exists.
func ListGroup(group string, found func(kind, name string)) error {
	if !exists(group) {
		return nil
	}
	found("control group", group)
	return filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil //nolint:nilerr // it has gone meanwhile
		}
		pids, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for _, pid := range strings.Fields(string(pids)) {
			if name, err := os.ReadFile("/proc/" + pid + "/comm"); err == nil {
				found("process", strings.TrimSpace(string(name))+" ("+pid+")")
			}
		}
		return nil
	})
}

// RemoveGroup kills what lives in a control group and in those below it, and removes them.
// One that is not there is no error.
func RemoveGroup(ctx context.Context, group string) error {
	// A group is busy for a moment after its last process has ended.
	if err := poll(ctx, func(context.Context) error { return removeGroup(group) }); err != nil {
		return fmt.Errorf("remove control groups: %w", err)
	}
	return nil
}

// removeGroup removes a group, the ones in it first.
func removeGroup(group string) error {
	entries, err := os.ReadDir(group)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		if err := removeGroup(filepath.Join(group, entry.Name())); err != nil {
			return err
		}
	}
	if err := killGroup(group); err != nil {
		return err
	}
	if err := syscall.Rmdir(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rmdir %s: %w", group, err)
	}
	return nil
}

func killGroup(group string) error {
	pids, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, field := range strings.Fields(string(pids)) {
		pid, err := strconv.Atoi(field)
		if err != nil || pid <= 0 {
			continue // 0: a process of another process namespace; kill(0) is ourselves
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill %d in %s: %w", pid, group, err)
		}
	}
	return nil
}
