// Package smalldisk mounts file systems that tests can fill.
package smalldisk

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
)

// Mount mounts a file system of so many MiB until the test ends, and returns its
// folder. Without the rights to mount it skips the test, with the reason.
func Mount(t testing.TB, size int) string {
	t.Helper()
	return MountWith(t, fmt.Sprintf("size=%dm", size))
}

// SourcePrefix begins what such a file system is mounted from, in /proc/mounts: the ID of
// the test's process follows.
const SourcePrefix = "edgehub-test-"

// MountWith is Mount with options of tmpfs.
func MountWith(t testing.TB, options string) string {
	t.Helper()
	dir, err := mount(t, options)
	if err != nil {
		t.Skipf("NOT RUN: a full disk is tested on a tmpfs, and here none can be mounted: %v", err)
	}
	return dir
}

// Try is Mount for tests that are about more than a full disk: without the rights to mount it returns "", and logs
// the reason.
func Try(t testing.TB, size int) string {
	t.Helper()
	dir, err := mount(t, fmt.Sprintf("size=%dm", size))
	if err != nil {
		t.Logf("NOT RUN: no disk is full: a tmpfs cannot be mounted: %v", err)
		return ""
	}
	return dir
}

func mount(t testing.TB, options string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount(SourcePrefix+strconv.Itoa(os.Getpid()), dir, "tmpfs", 0, options); err != nil {
		return "", err
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir, nil
}
