package log_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// mountDisk mounts a file system of a size.
func mountDisk(t *testing.T, size string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: a full disk is tested on a tmpfs, and only root may mount one")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("NOT RUN: a full disk is tested on a tmpfs, and here none can be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillDisk leaves no byte free until the returned function is called.
func fillDisk(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// remount makes a disk read-only, or with no flags one that can be written.
func remount(t *testing.T, disk string, flags uintptr) {
	t.Helper()
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT|flags, ""); err != nil {
		t.Fatal(err)
	}
}

func stat(t *testing.T, dir string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, "cache.log"))
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// filesWith returns the files in folders that contain text.
func filesWith(t *testing.T, text string, folders ...string) string {
	t.Helper()
	var found []string
	for _, dir := range folders {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(b, []byte(text)) {
				found = append(found, e.Name())
			}
		}
	}
	return strings.Join(found, " ")
}
