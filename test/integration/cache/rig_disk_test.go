package cache

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// awaitDisk waits until everything that the hub knows is on disk.
func (h *hub) awaitDisk() {
	h.t.Helper()
	poll.Until(h.t, patience, "nothing waits for the disk", func() bool {
		pending, ok := h.metric("edgehub_cache_pending_bytes")
		if !ok {
			h.t.Fatal("there is no metric edgehub_cache_pending_bytes")
		}
		return pending == 0
	})
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

// traced runs the hub under strace, which notes these system calls in a file, and does
// with them what inject says.
func traced(t *testing.T, calls, inject string) (hubOption, string) {
	t.Helper()
	program, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("NOT RUN: what the hub asks of its disk is seen, and slowed down, with strace, which is not installed")
	}
	if out, err := exec.Command(program, "-o", "/dev/null", "true").CombinedOutput(); err != nil {
		t.Skipf("NOT RUN: strace does not work here: %v: %s", err, out)
	}
	trace := filepath.Join(t.TempDir(), "trace")
	return under(program, "-f", "-D", "--seccomp-bpf", "-qq", "-o", trace, "-e", "trace="+calls, "-e", "inject="+calls+":"+inject), trace
}
