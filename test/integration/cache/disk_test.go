package cache

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/smalldisk"
)

// invariant 12: after kill -9 at any instant, each list equals one that the apiserver
// has served, whole. test/chaos/cache does this at length.
func TestInvariant12_KilledAtAnyInstant(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	paths := []string{s.path, s.selected("parity=0"), s.selected("parity=1"), s.named("load-007")}
	const rounds = 8
	last := uint64(0)
	for round := range rounds {
		for _, path := range paths {
			h.node.watch(t, with(path, watchListQuery), protobuf)
			h.node.get(t, path, asJSON)
		}
		wait := time.Duration(rand.IntN(2500)) * time.Millisecond
		if round == 0 {
			h.awaitDisk() // what is there once stays
			s.load(t)
		}
		<-time.After(wait) // the instant
		h.kill()
		h.cut()
		h.start()
		for _, accept := range []string{protobuf, asJSON} {
			if known := h.checkViews(t, paths, accept); known < len(paths) {
				t.Errorf("round %d, after %v: only %d of %d lists are there", round, wait, known, len(paths))
			}
		}
		version := number(t, h.node.servedList(t, s.path, protobuf).version)
		if version < last {
			t.Errorf("round %d, after %v: the list is at %d, and was at %d a crash before", round, wait, version, last)
		}
		last = version
		h.connect()
	}
}

// invariant 12: what was there a few seconds before a crash is there after it: a commit
// comes each second.
func TestInvariant12_ACrashCostsLittle(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 3)
	w := h.node.watch(t, with(s.path, watchListQuery), protobuf)
	w.initial(t)
	s.change("c-001", "changed")
	version := w.expect(t, watch.Modified, "c-001").version
	h.awaitDisk()
	h.kill()
	h.cut()
	h.start()
	if l := h.node.servedList(t, s.path, protobuf); number(t, l.version) < number(t, version) {
		t.Errorf("the list is at %s; want %s", l.version, version)
	}
}

// invariant 13: dropping any suffix of what was not yet synced leaves lists that the
// apiserver has served. The file is copied while it is written, which a power cut is no
// worse than; and its end is cut off.
func TestInvariant13_AnySuffixOfTheFileDropped(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	paths := []string{s.path, s.selected("parity=0"), s.named("load-007")}
	for _, path := range paths {
		h.node.watch(t, with(path, watchListQuery), protobuf).initial(t)
	}
	h.awaitDisk()
	l := s.load(t)
	const copies = 6
	dirs := make([]string, copies)
	for i := range dirs {
		<-time.After(time.Duration(300+rand.IntN(700)) * time.Millisecond) // the instant
		dirs[i] = t.TempDir()
		copyDir(t, h.Root, dirs[i])
	}
	l.stop()
	known := 0
	for i, dir := range dirs {
		truncated := ""
		if i%2 == 1 {
			file := largestFile(t, filepath.Join(dir, "cache"))
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			used := len(bytes.TrimRight(content, "\x00")) // it grows by zeros, 1 MiB at once
			size := rand.IntN(used)
			if err := os.Truncate(file, int64(size)); err != nil {
				t.Fatal(err)
			}
			truncated = fmt.Sprintf(", truncated to %d of %d bytes", size, used)
		}
		t.Run(fmt.Sprint("copy ", i, truncated), func(t *testing.T) {
			crashed := newHub(t, inDir(dir), startOffline)
			n := crashed.checkViews(t, paths, protobuf)
			t.Logf("%d of %d lists are there%s", n, len(paths), truncated)
			if truncated == "" {
				known += n
			}
			crashed.connect() // and it goes on
			crashed.node.get(t, s.path, protobuf)
			crashed.awaitDisk() // of a new file, if the old one is of no use
			crashed.cut()
			crashed.kill()
			crashed.start()
			crashed.node.servedList(t, s.path, protobuf)
		})
	}
	if known == 0 {
		t.Error("no copy had any list: the test has shown nothing")
	}
}

// invariant 14: a full disk does not touch clients, and when there is space again the
// hub goes on without a restart.
func TestInvariant14_AFullDisk(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	disk := smalldisk.Mount(t, 8)
	if err := os.Symlink(disk, filepath.Join(root, "cache")); err != nil {
		t.Fatal(err)
	}
	h, s := newHub(t, inDir(root)), newSpace(t)
	t.Cleanup(h.End) // before the disk is unmounted
	s.large("c", 5, 10_000)
	w := h.node.watch(t, with(s.path, watchListQuery), protobuf)
	w.initial(t)
	h.awaitDisk()

	free := fillDisk(t, disk)
	last := ""
	for range 20 {
		s.change("c-001", noise(10_000))
		last = w.expect(t, watch.Modified, "c-001").version
		h.node.servedList(t, s.path, asJSON)
		<-time.After(150 * time.Millisecond) // some commits fail meanwhile
	}
	failed, ok := h.metric("edgehub_cache_commits_total", `result="error"`)
	if !ok || failed == 0 {
		t.Errorf("%v commits failed: the disk was not full", failed)
	}
	if lists, _ := h.metric("edgehub_cache_relists_total"); lists > 0 {
		t.Errorf("the hub has listed %v times: memory did not keep what the disk refused", lists)
	}
	h.cut() // and what is in memory is served
	version := h.node.servedList(t, s.path, protobuf).version
	if number(t, version) < number(t, last) {
		t.Errorf("the list is at %s, though an event at %s was seen", version, last)
	}
	h.node.servedList(t, s.path, asJSON)
	h.connect()

	poll.Until(t, patience, "it is tried again, though nothing is new", func() bool {
		now, _ := h.metric("edgehub_cache_commits_total", `result="error"`)
		return now >= failed+3
	})
	free()
	h.awaitDisk()
	h.kill()
	h.cut()
	h.start()
	if l := h.node.servedList(t, s.path, protobuf); number(t, l.version) < number(t, version) {
		t.Errorf("after the disk had space again, the list on it is at %s; want at least %s", l.version, version)
	}
}
