package callers

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	podUID      = "8a7b1c2d-0e1f-4a5b-8c6d-7e8f9a0b1c2d"
	containerID = "4f1d1d6a3e4c4d0d9f6a2b7f5f0e8c7d6b5a49382716054f3e2d1c0b9a887766"
)

// hierarchy is where a control group can be made: version 2's, or one of version 1
// that needs no settings.
func hierarchy(t *testing.T) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	var v1, v2 string
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line) // device, mount point, type, options
		switch {
		case fields[2] == "cgroup2":
			v2 = fields[1]
		case fields[2] == "cgroup" && strings.Contains(fields[3], "pids"):
			v1 = fields[1]
		}
	}
	if v1 == "" && v2 == "" {
		t.Fatal("no hierarchy of control groups is mounted")
	}
	if v1 != "" {
		return v1
	}
	return v2
}

// putInto moves a process into a group of this name, in a folder of the test's own, which
// is named like a slice of systemd and has this process's ID: package leftovers looks whether
// that lives. Both go with the test.
func putInto(t *testing.T, group string) func(pid int) {
	t.Helper()
	root := filepath.Join(hierarchy(t), fmt.Sprintf("edgehub-callers-%d-%08x.slice", os.Getpid(), rand.Uint32()))
	dir := filepath.Join(root, group)
	t.Cleanup(func() { // after the process has ended
		for ; len(dir) >= len(root); dir = filepath.Dir(dir) {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		}
	})
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return func(pid int) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// inPod starts a caller in a pod's group.
func inPod(t *testing.T, group string) *caller {
	t.Helper()
	put := putInto(t, group)
	c := newCaller(t, nil)
	put(c.pid)
	return c
}
