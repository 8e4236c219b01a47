package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// startOffline makes a hub start without the cloud.
func startOffline(o *hubproc.Options) { o.Offline = true }

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

// copyDir copies a folder as it is at some moment, files that are being written among
// what it holds: nothing is asked to hold still.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // has gone meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, relative), 0o700)
		}
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, relative), content, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// largestFile is the cache's file, whatever its name.
func largestFile(t *testing.T, dir string) string {
	t.Helper()
	largest, size := "", int64(-1)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Size() > size {
			largest, size = path, info.Size()
		}
		return err
	})
	if err != nil || largest == "" {
		t.Fatalf("no file in %s: %v", dir, err)
	}
	return largest
}

// load changes a space all the time: objects come, change and go.
type load struct {
	stop func()
}

func (s *space) load(t *testing.T) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			name := fmt.Sprintf("load-%03d", rand.IntN(40))
			_, err := s.patch(ctx, name, fmt.Sprint("round ", n, " ", noise(1+rand.IntN(4000))))
			switch {
			case err == nil && rand.IntN(5) == 0:
				_ = s.maps.Delete(ctx, name, metav1.DeleteOptions{})
			case err != nil && ctx.Err() == nil:
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"parity": fmt.Sprint(n % 2)}}}
				_, _ = s.maps.Create(ctx, object, metav1.CreateOptions{})
			}
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	l := &load{stop: sync.OnceFunc(func() { cancel(); all.Wait() })}
	t.Cleanup(l.stop)
	return l
}

// checkViews compares all that a hub serves offline with what the apiserver has served.
// It returns how many of the lists the hub has. A list that it does not have is no
// mistake; one that is wrong or short is.
func (h *hub) checkViews(t *testing.T, paths []string, accept string) (known int) {
	t.Helper()
	for _, path := range paths {
		a := h.node.do(t, request{path: path, accept: accept})
		if a.status == http.StatusServiceUnavailable {
			continue
		}
		known++
		l := a.served(t, path, accept)
		items, version := h.node.watch(t, with(path, watchListQuery), accept).initial(t)
		if version != l.version || len(items) != len(l.items) {
			t.Errorf("WatchList of %s: %d objects at %s; the LIST has %d at %s", path, len(items), version, len(l.items), l.version)
		}
	}
	return known
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
// with them those of inject, if any.
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
	args := []string{program, "-f", "-D", "--seccomp-bpf", "-qq", "-o", trace, "-e", "trace=" + calls}
	if inject != "" {
		args = append(args, "-e", "inject="+calls+":"+inject)
	}
	return under(args...), trace
}
