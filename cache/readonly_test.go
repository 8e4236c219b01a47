package cache

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

// A file system with errors is read-only after the reboot: what is in the cache is served, and the hub
// says so.
func TestAReadOnlyDiskIsServed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: a read-only disk is tested on a tmpfs, and only root may mount one")
	}
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("NOT RUN: a read-only disk is tested on a tmpfs, and here none can be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		u, dir := newUpstream(), filepath.Join(disk, "cache")
		u.shows("100", podJSON("a", "50"), podJSON("b", "51"))
		c, stop := runIn(t, dir, u)
		get(t, c, urlPods)
		get(t, c, urlPodA)
		stop()
		if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		u.goAway()
		c = startIn(t, dir, u)
		expect(t, c, "offline", urlPods, "100: a=50 b=51")
		expect(t, c, "offline", urlPodA, "a=50")
		if _, _, trouble := c.Health(); !strings.Contains(trouble, "read-only") {
			t.Errorf("it does not say so: %q", trouble)
		}
		u.comeBack()
		u.shows("200", podJSON("a", "150"))
		expect(t, c, "online", urlPods, "200: a=150")
		u.goAway()
		expect(t, c, "offline, with what is in memory only", urlPods, "200: a=150")
	})
}
