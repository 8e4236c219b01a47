// Package smalldisk mounts file systems that tests can fill.
package smalldisk

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// Mount mounts a file system of so many MiB until the test ends, and returns its
// folder. Without the rights to mount it skips the test, with the reason.
func Mount(t testing.TB, size int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN: a full disk is tested on a tmpfs, and only root may mount one")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", size)); err != nil {
		t.Skipf("NOT RUN: a full disk is tested on a tmpfs, and here none can be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}
