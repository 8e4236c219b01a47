package log_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/log"
)

// Invariant 14: a full disk takes nothing from readers, and the log works again when there is space.
func TestFullDisk(t *testing.T) {
	disk := mountDisk(t, "4m")
	dir := filepath.Join(disk, "cache")
	o := open(t, dir, log.Options{})
	for _, name := range names(5) {
		o.change(t, put("pods", name, "1", text(name, 10_000)))
	}
	o.flush(t)
	onDisk := o.state()
	free := fillDisk(t, disk)
	for i := range 3 {
		o.change(t, put("pods", "pod-00", fmt.Sprint(i), text(fmt.Sprint("version ", i), 10_000)), put("big", "b", fmt.Sprint(i), text(fmt.Sprint(i), 1<<20)))
		if err := o.log.Flush(); !errors.Is(err, log.ErrNoSpace) || !errors.Is(o.log.Trouble(), log.ErrNoSpace) {
			t.Fatalf("got error %v from a full disk, and trouble %v", err, o.log.Trouble())
		}
		o.mustBeWhole(t, o.state())
	}
	// A new file is not even begun: it would fill the disk for all programs of the machine.
	begun := filepath.Join(dir, "cache.new.log")
	if err := os.Mkdir(begun, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := o.log.Rewrite(); !errors.Is(err, log.ErrNoSpace) {
		t.Fatalf("got error %v of a full disk for a new file", err)
	}
	if err := os.Remove(begun); err != nil {
		t.Fatal(err)
	}
	o.mustBeWhole(t, o.state())
	copied := filepath.Join(t.TempDir(), "cache") // as after a restart
	writeFile(t, copied, readFile(t, dir))
	open(t, copied, log.Options{}).mustBeWhole(t, onDisk)
	free()
	o.flush(t)
	if err := o.log.Trouble(); err != nil {
		t.Error(err)
	}
	want := o.state()
	o.close(t)
	again := open(t, dir, log.Options{})
	again.mustBeWhole(t, want)
	if err := again.log.Rewrite(); err != nil {
		t.Error(err)
	}
	again.close(t)
}

// A disk that is full at the first start is used when there is space.
func TestADiskThatIsFullAtTheStart(t *testing.T) {
	disk := mountDisk(t, "4m")
	dir := filepath.Join(disk, "cache")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		free := fillDisk(t, disk)
		o, err := tryOpen(t, dir, log.Options{})
		if !errors.Is(err, log.ErrNoSpace) || !errors.Is(o.log.Trouble(), log.ErrNotOpen) {
			t.Fatalf("got error %v from a full disk, and trouble %v", err, o.log.Trouble())
		}
		o.full = true
		stop := o.run(t)
		o.change(t, put("pods", "a", "1", "one"))
		time.Sleep(10 * time.Second)
		o.mustBeWhole(t, o.state())
		free()
		time.Sleep(2 * time.Minute)
		stop()
		want := o.state()
		o = open(t, dir, log.Options{})
		o.mustBeWhole(t, want)
		o.close(t)
	})
}

// A disk that is read-only after a reboot, or becomes so, serves what is on it.
func TestReadOnlyDisk(t *testing.T) {
	disk := mountDisk(t, "4m")
	dir := filepath.Join(disk, "cache")
	o := open(t, dir, log.Options{})
	o.change(t, put("pods", "a", "1", "one"))
	o.flush(t)
	want := o.state()
	o.change(t, put("pods", "torn", "1", text("torn", 10_000)))
	o.flush(t)
	o.close(t)
	file := readFile(t, dir)
	writeFile(t, dir, file[:len(file)-5000])
	remount(t, disk, syscall.MS_RDONLY)
	o = open(t, dir, log.Options{})
	o.mustBeWhole(t, want)
	for range 2 {
		o.change(t, put("pods", "b", "1", "two"))
		if err := o.log.Flush(); !errors.Is(err, log.ErrReadOnly) || !errors.Is(o.log.Trouble(), log.ErrReadOnly) {
			t.Fatalf("a commit: %v, trouble %v", err, o.log.Trouble())
		}
		o.mustBeWhole(t, o.state())
	}
	remount(t, disk, 0)
	o.flush(t)
	if err := o.log.Trouble(); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(readFile(t, dir), []byte("torn torn")) {
		t.Error("what was torn is behind the next commit")
	}
	want = o.state()
	o.close(t)
	o = open(t, dir, log.Options{})
	o.mustBeWhole(t, want)
	o.close(t)
}

// After a sync that failed nobody knows what is on disk.
func TestAfterASyncThatFailedANewFileIsWritten(t *testing.T) {
	dir := t.TempDir()
	o := open(t, dir, log.Options{})
	o.change(t, put("pods", "a", "1", "one"), put("pods", "b", "1", "two"))
	o.flush(t)
	before := stat(t, dir)
	for i, after := range []int{0, 0, 1, 2} { // of the commit, and then of the bodies of a new file, twice, and of all of it
		o.log.FailSync(after, syscall.EIO)
		o.change(t, put("pods", "a", fmt.Sprint(i), fmt.Sprint("version ", i)))
		if err := o.log.Flush(); !errors.Is(err, syscall.EIO) || !errors.Is(o.log.Trouble(), syscall.EIO) {
			t.Fatalf("got error %v, and trouble %v", err, o.log.Trouble())
		}
		o.mustBeWhole(t, o.state())
	}
	if !os.SameFile(before, stat(t, dir)) {
		t.Error("a file that could not be synced has replaced the log")
	}
	o.log.FailSync(0, nil)
	o.flush(t)
	if os.SameFile(before, stat(t, dir)) {
		t.Error("the file is still used")
	}
	want := o.state()
	o.change(t, put("pods", "c", "1", "three"))
	o.flush(t)
	o.mustBeWhole(t, o.state())
	o.close(t)
	delete(want, "pods")
	if got := open(t, dir, log.Options{}); len(got.state()["pods"]) != 3 || got.damaged(t) > 0 {
		t.Errorf("got %v", got.state())
	}
	if _, err := os.Stat(filepath.Join(dir, "cache.new.log")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that was begun is left: %v", err)
	}
}

// What a hub that was killed has written may not be synced, and clients see it after the start.
func TestAFileThatCannotBeSyncedAtTheStartIsReplaced(t *testing.T) {
	dir := t.TempDir()
	o := open(t, dir, log.Options{})
	o.change(t, put("pods", "a", "1", "one"))
	o.flush(t)
	want := o.state()
	o.close(t)
	before := stat(t, dir)
	l, err := log.New(dir, log.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o = &owner{log: l, tables: map[string]map[string]row{}}
	l.FailSync(0, syscall.EIO)
	if err := l.Open(o); err != nil {
		t.Fatal(err)
	}
	o.mustBeWhole(t, want)
	l.FailSync(0, nil)
	o.change(t, put("pods", "b", "1", "two"))
	o.flush(t)
	if os.SameFile(before, stat(t, dir)) {
		t.Error("the file is still used")
	}
	o.mustBeWhole(t, o.state())
}

// A file that cannot be replaced for want of space is, when there is some.
func TestAFileThatHasGrownIsReplacedWhenThereIsSpace(t *testing.T) {
	disk := mountDisk(t, "40m")
	dir := filepath.Join(disk, "cache")
	synctest.Test(t, func(t *testing.T) {
		o := open(t, dir, log.Options{})
		stop := o.run(t)
		for version := range 3 { // 24 MB, of which 8 are needed
			for i := range 8 {
				o.change(t, put("big", fmt.Sprint(i), "1", text(fmt.Sprint(version, i), 1_000_000)))
			}
			o.flush(t)
		}
		ballast := filepath.Join(disk, "ballast")
		if err := os.WriteFile(ballast, make([]byte, 10<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		before := stat(t, dir)
		for i := range 10 {
			o.change(t, drop("none"), put("pods", "a", "1", fmt.Sprint(i))) // after a drop it is found out what is needed
			time.Sleep(time.Minute)
		}
		if !os.SameFile(before, stat(t, dir)) {
			t.Error("the file was replaced: this test shows nothing")
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Minute)
		o.change(t, drop("none"))
		time.Sleep(time.Minute)
		if n := stat(t, dir).Size(); n > 9<<20 {
			t.Errorf("there is space again, and the file has %d bytes", n)
		}
		stop()
		want := o.state()
		o = open(t, dir, log.Options{})
		o.mustBeWhole(t, want)
		o.close(t)
	})
}

// useFiles leaves n files that this process can open, until the returned function is called.
func useFiles(t *testing.T, n int) (free func()) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = 64
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	var used []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		used = append(used, f)
	}
	for range n {
		used[len(used)-1].Close()
		used = used[:len(used)-1]
	}
	freed := false
	free = func() {
		for _, f := range used {
			f.Close()
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil && !freed {
			t.Error(err)
		}
		freed = true
	}
	t.Cleanup(free)
	return free
}

// Until the folder is synced, a power cut may give its name back to the file before, without what was committed since.
func TestNothingIsCommittedUntilTheNameOfTheFileIsOnDisk(t *testing.T) {
	dir, replaced := t.TempDir(), t.TempDir()
	o := open(t, dir, log.Options{})
	o.change(t, put("pods", "a", "1", "one"), put("pods", "b", "1", "a body of the old file"))
	o.flush(t)
	if err := os.Link(filepath.Join(dir, "cache.log"), filepath.Join(replaced, "earlier")); err != nil {
		t.Fatal(err)
	}
	before := stat(t, dir)
	free := useFiles(t, 1) // enough for the new file, and not to open the folder
	err := o.log.Rewrite()
	if !errors.Is(err, syscall.EMFILE) || os.SameFile(before, stat(t, dir)) {
		t.Fatalf("got error %v; the file was to be renamed, and the folder not to be synced", err)
	}
	o.change(t, put("pods", "a", "2", "two"))
	rest := useFiles(t, 0)
	err = errors.Join(o.log.Flush(), o.log.Sweep())
	rest()
	free()
	if !errors.Is(err, syscall.EMFILE) {
		t.Errorf("a commit while the folder cannot be synced: %v", err)
	}
	if filesWith(t, "a body of the old file", replaced) == "" {
		t.Error("the old file was overwritten")
	}
	o.mustBeWhole(t, o.state())
	o.flush(t)
	if err := o.log.Rewrite(); err != nil {
		t.Fatal(err)
	}
	if filesWith(t, "a body of the old file", replaced) != "" {
		t.Error("the old file was not overwritten")
	}
	want := o.state()
	o.close(t)
	open(t, dir, log.Options{}).mustBeWhole(t, want)
}

// Invariant 16: a slow disk does not delay what is put, nor reads of what waits.
func TestWhileACommitRunsMoreIsPutAndRead(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, dir, log.Options{})
		o.log.SlowSync(time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- o.log.Run(ctx, o.attempted) }()
		o.change(t, put("pods", "a", "1", "one"))
		time.Sleep(time.Second)
		began := time.Now()
		for i := range 1000 {
			o.change(t, put("pods", "b", fmt.Sprint(i), fmt.Sprint("version ", i)), put("pods", "a", "2", "one"))
		}
		o.mustBeWhole(t, o.state())
		if took := time.Since(began); took > 0 { // time passes only when all wait
			t.Errorf("it took %v", took)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		want := o.state()
		o = open(t, dir, log.Options{})
		o.mustBeWhole(t, want)
		o.close(t)
	})
}
