package cache_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// fault is what happens at the end of some load. It leaves the hub killed.
type fault struct {
	name string
	// full faults need a disk of their own.
	full bool
	do   func(*world)
}

var faults = []fault{
	{name: "killed", do: (*world).kill},
	{name: "killed when all was written", do: func(w *world) {
		w.freeDisk() // which an earlier fault may have left full
		version := w.cloud.Version()
		w.await("all views are whole", func() error { return w.whole(version) })
		commits := w.commits()
		w.await("what they are is written", func() error {
			if now := w.commits(); now < commits+2 { // one may have been under way
				return fmt.Errorf("%d commits, before it were %d", now, commits)
			}
			return nil
		})
		w.kill()
		w.written = version
	}},
	{name: "killed while it starts", do: func(w *world) {
		w.kill()
		for range 1 + w.rand.IntN(3) {
			w.launch()
			w.goOn(time.Duration(w.rand.IntN(80)) * time.Millisecond)
			w.kill()
		}
	}},
	{name: "cut short", do: func(w *world) {
		w.kill()
		w.damage(func(r *rand.Rand, b []byte) []byte { return b[:r.IntN(len(b))] })
	}},
	{name: "its end is missing", do: func(w *world) {
		w.kill()
		w.damage(func(r *rand.Rand, b []byte) []byte { return b[:len(b)-1-r.IntN(min(len(b)-1, 64<<10))] })
	}},
	{name: "bits flipped", do: func(w *world) {
		w.kill()
		w.damage(func(r *rand.Rand, b []byte) []byte {
			for range 1 + r.IntN(1<<r.IntN(10)) {
				b[r.IntN(len(b))] ^= 1 << r.IntN(8)
			}
			return b
		})
	}},
	{name: "blocks of zeros", do: func(w *world) {
		w.kill()
		w.damage(func(r *rand.Rand, b []byte) []byte {
			for range 1 + r.IntN(4) {
				at := r.IntN(len(b)) &^ 511
				clear(b[at:min(at+512<<r.IntN(4), len(b))])
			}
			return b
		})
	}},
	{name: "blocks as they were before", do: (*world).killWithLostWrites},
	{name: "disk full, then killed", full: true, do: func(w *world) {
		w.fillDisk()
		w.goOn(time.Duration(w.rand.IntN(1000)) * time.Millisecond)
		w.kill()
	}},
	{name: "disk full for a while, then killed", full: true, do: func(w *world) {
		w.fillDisk()
		w.goOn(time.Duration(w.rand.IntN(1000)) * time.Millisecond)
		w.freeDisk()
		w.goOn(time.Duration(w.rand.IntN(1000)) * time.Millisecond)
		w.kill()
	}},
}

// files are those of the cache that have something in them.
func (w *world) files() []string {
	w.t.Helper()
	var all []string
	err := filepath.WalkDir(w.cacheDir(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Size() > 1 {
			all = append(all, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the hub may not have come so far
		w.t.Fatal(err)
	}
	return all
}

func (w *world) cacheDir() string { return filepath.Join(w.root, "cache") }

// damage changes one file, mostly the largest.
func (w *world) damage(change func(*rand.Rand, []byte) []byte) {
	w.t.Helper()
	var target []byte
	var name string
	for _, file := range w.files() {
		content, err := os.ReadFile(file)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(content) > len(target) != (w.rand.IntN(4) == 0) || name == "" {
			name, target = file, content
		}
	}
	if name != "" {
		w.overwrite(name, change(w.rand, target))
	}
}

// overwrite writes what differs, and so takes no space, of which there may be none.
func (w *world) overwrite(name string, content []byte) {
	w.t.Helper()
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	defer file.Close()
	before, err := io.ReadAll(file)
	if err != nil {
		w.t.Fatal(err)
	}
	const block = 512
	for at := 0; at < len(content); at += block {
		to := min(at+block, len(content))
		if bytes.Equal(content[at:to], before[at:to]) {
			continue
		}
		if _, err := file.WriteAt(content[at:to], int64(at)); err != nil && !errors.Is(err, syscall.ENOSPC) { // a hole stays one
			w.t.Fatal(err)
		}
	}
	if err := file.Truncate(int64(len(content))); err != nil {
		w.t.Fatal(err)
	}
}

// killWithLostWrites leaves some blocks of the cache's files as they were a while
// before the kill.
func (w *world) killWithLostWrites() {
	w.t.Helper()
	before := map[string][]byte{}
	for _, file := range w.files() {
		content, err := os.ReadFile(file)
		if err != nil {
			w.t.Fatal(err)
		}
		before[file] = content
	}
	w.goOn(time.Duration(200+w.rand.IntN(1000)) * time.Millisecond)
	w.kill()
	for _, file := range w.files() {
		content, err := os.ReadFile(file)
		if err != nil {
			w.t.Fatal(err)
		}
		const block = 4096
		var changed []int
		for at := 0; at+block <= min(len(content), len(before[file])); at += block {
			if !bytes.Equal(content[at:at+block], before[file][at:at+block]) {
				changed = append(changed, at)
			}
		}
		for _, at := range changed {
			if w.rand.IntN(4) == 0 {
				copy(content[at:at+block], before[file][at:at+block])
			}
		}
		w.overwrite(file, content)
	}
}

func (w *world) ballast() string { return filepath.Join(w.root, "ballast") }

// fillDisk leaves no byte free.
func (w *world) fillDisk() {
	w.t.Helper()
	file, err := os.OpenFile(w.ballast(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	defer file.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = file.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			w.t.Fatal(err)
		}
	}
}

func (w *world) freeDisk() {
	w.t.Helper()
	if err := os.Remove(w.ballast()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
}
