package cri

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

func TestLogs(t *testing.T) {
	f := newFake(t)
	f.addPod("uid", nil)
	before := f.start(t, "uid", "app", line("before"))
	ctx := t.Context()
	show := func(o LogOptions) (string, error) {
		var out bytes.Buffer
		o.Notes = io.Discard
		err := f.Logs(ctx, web, o, &out)
		return out.String(), err
	}
	_, err := show(LogOptions{Previous: true})
	expect(t, err, cli.NotNow, "has no previous run")
	f.end(before, 1)
	if got, err := show(LogOptions{Tail: -1, Previous: true}); err != nil || got != "before\n" {
		t.Errorf("of a container that has just crashed: %q, %v", got, err)
	}
	now := f.start(t, "uid", "app", line("one")+line("\x1b[31mtwo\xff")+line("three"))
	tests := map[string]struct {
		o    LogOptions
		want string
	}{
		"all of it, byte for byte": {LogOptions{Tail: -1}, "one\n\x1b[31mtwo\xff\nthree\n"},
		"the end":                  {LogOptions{Tail: 2}, "\x1b[31mtwo\xff\nthree\n"},
		"nothing":                  {LogOptions{Tail: 0}, ""},
		"more than there is":       {LogOptions{Tail: 99}, "one\n\x1b[31mtwo\xff\nthree\n"},
		"what is not older":        {LogOptions{Tail: -1, Since: lineTime}, "one\n\x1b[31mtwo\xff\nthree\n"},
		"nothing that is older":    {LogOptions{Tail: -1, Since: lineTime.Add(1)}, ""},
		"the previous run":         {LogOptions{Tail: -1, Previous: true}, "before\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := show(tt.o); err != nil || got != tt.want {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
	if err := os.Remove(now.LogPath); err != nil {
		t.Fatal(err)
	}
	_, err = show(LogOptions{Tail: -1})
	expect(t, err, cli.NotNow, "has no log on this node")
}

// A pod that may write below /var/log can replace a log by another file.
func TestLogThatSomebodyHasReplaced(t *testing.T) {
	f := newFake(t)
	f.addPod("uid", nil)
	c := f.start(t, "uid", "app", "")
	secret := filepath.Join(f.dir, "shadow")
	write(t, secret, "root:secret:1\n2026-11-23T10:00:00Z stdin F secret\n"+line("app"))
	replace := func(put func() error) {
		t.Helper()
		if err := os.RemoveAll(c.LogPath); err != nil {
			t.Fatal(err)
		}
		if err := put(); err != nil {
			t.Fatal(err)
		}
	}
	var out, notes bytes.Buffer
	o := LogOptions{Tail: -1, Notes: &notes}
	replace(func() error { return os.Symlink(secret, c.LogPath) })
	expect(t, f.Logs(t.Context(), web, o, &out), cli.Failed, "is no file, as containerd writes it, but a link")
	replace(func() error { return syscall.Mkfifo(c.LogPath, 0o600) })
	expect(t, f.Logs(t.Context(), web, o, &out), cli.Failed, "but a link, pipe")
	replace(func() error { return os.Mkdir(c.LogPath, 0o700) })
	expect(t, f.Logs(t.Context(), web, o, &out), cli.Failed, "is no file")
	replace(func() error { return os.Link(secret, c.LogPath) })
	if err := f.Logs(t.Context(), web, o, &out); err != nil || out.String() != "app\n" {
		t.Errorf("of lines that are none of a log: got %q, %v", &out, err)
	}
	if notes.String() != "Left out: lines of the log that are not in the format of CRI: 2\n" {
		t.Errorf("notes are %q", &notes)
	}
}

// The folder of a container's log, or of a pod's, leads elsewhere.
func TestFolderOfALogThatSomebodyHasReplaced(t *testing.T) {
	dir := t.TempDir()
	secrets := t.TempDir()
	write(t, filepath.Join(secrets, "0.log"), line("secret"))
	pods := filepath.Join(dir, "pods")
	theirs := filepath.Join(pods, "pod", "real")
	if err := os.MkdirAll(theirs, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(theirs, "0.log"), line("app"))
	if err := os.Symlink(secrets, filepath.Join(pods, "pod", "app")); err != nil {
		t.Fatal(err)
	}
	if l, err := openLog(filepath.Join(pods, "pod", "app", "0.log")); err == nil {
		l.close()
		t.Error("a log elsewhere was opened")
	}
	// The folder of all logs may be on another disk.
	elsewhere := filepath.Join(dir, "logs")
	if err := os.Symlink(pods, elsewhere); err != nil {
		t.Fatal(err)
	}
	l, err := openLog(filepath.Join(elsewhere, "pod", "real", "0.log"))
	if err != nil {
		t.Fatal(err)
	}
	l.close()
}

func TestLogFormat(t *testing.T) {
	long := strings.Repeat("x", 3*logBlock)
	const partial = "2026-11-23T10:00:00Z stderr P "
	tests := map[string]struct{ log, want string }{
		"parts of a line":         {partial + "a\n" + partial + "b\n" + line("c"), "abc\n"},
		"a tag of the future":     {"2026-11-23T10:00:00Z stdout P:x a\n", "a"},
		"a line beyond the block": {line(long) + line("a"), long + "\na\n"},
		"a long part":             {partial + long + "\n" + line("a"), long + "a\n"},
		"a long line of no log":   {long + "\n" + line("a"), "a\n"},
		"a line without its end":  {line("a") + "2026-11-23T10:00:00Z stdout F b", "a\n"},
		"an empty line":           {line(""), "\n"},
		"what a power cut leaves": {"\x00\x00\x00\n" + line("a"), "a\n"},
		"no words":                {"2026-11-23T10:00:00Z\n2026-11-23T10:00:00Z stdout\n2026-11-23T10:00:00Z stdout F\n", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "0.log")
			write(t, path, tt.log)
			l, err := openLog(path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.close()
			var out bytes.Buffer
			if err := l.copy(&out); err != nil || out.String() != tt.want {
				t.Errorf("got %d bytes, %v, want %d", out.Len(), err, len(tt.want))
			}
		})
	}
}

// The end of a file is found backwards, across blocks.
func TestTailAcrossBlocks(t *testing.T) {
	text := line(strings.Repeat("x", logBlock)) + line("a") + line(strings.Repeat("y", 2*logBlock))
	first := int64(len(line(strings.Repeat("x", logBlock))))
	for lines, want := range map[int64]int64{0: int64(len(text)), 1: first + int64(len(line("a"))), 2: first, 3: 0} {
		if got, err := tailStart(strings.NewReader(text), int64(len(text)), lines); err != nil || got != want {
			t.Errorf("%d lines: begin at %d, %v, want %d", lines, got, err, want)
		}
	}
}

// buffer is a bytes.Buffer for two goroutines.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) await(t *testing.T, want string) {
	t.Helper()
	got := ""
	for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); {
		b.mu.Lock()
		got = b.text.String()
		b.mu.Unlock()
		if got == want {
			return
		}
		cli.Pause(t.Context(), time.Millisecond)
	}
	t.Fatalf("got %q, want %q", got, want)
}

// follow begins to follow the log of app, and returns what comes, and the result.
func (f *fakeRuntime) followIn(ctx context.Context, notes io.Writer) (*buffer, chan error) {
	out, done := &buffer{}, make(chan error, 1) // the result
	go func() {
		done <- f.Logs(ctx, web, LogOptions{Container: "app", Tail: 1, Follow: true, Notes: notes}, out)
	}()
	return out, done
}

func TestFollowAcrossRotationAndRestart(t *testing.T) {
	f := newFake(t)
	f.addPod("uid", nil)
	c := f.start(t, "uid", "app", line("zero")+line("one"))
	notes := &buffer{}
	out, done := f.followIn(t.Context(), notes)
	out.await(t, "one\n")

	write(t, c.LogPath, line("two")[:30]) // containerd is writing
	write(t, c.LogPath, line("two")[30:])
	out.await(t, "one\ntwo\n")

	write(t, c.LogPath, line("three")) // and kubelet rotates at once
	if err := os.Rename(c.LogPath, c.LogPath+".1"); err != nil {
		t.Fatal(err)
	}
	write(t, c.LogPath, line("four"))
	out.await(t, "one\ntwo\nthree\nfour\n")

	write(t, c.LogPath, line("last words"))
	f.end(c, 1)
	next := f.start(t, "uid", "app", line("hello"))
	out.await(t, "one\ntwo\nthree\nfour\nlast words\nhello\n")
	notes.await(t, "Container app of pod shop/web-1 has started again (restart 1)\n")

	write(t, next.LogPath, line("bye"))
	f.forget()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	out.await(t, "one\ntwo\nthree\nfour\nlast words\nhello\nbye\n")
}

// pager is a program that does not read on until somebody presses a key.
type pager struct {
	*buffer
	full, key chan struct{}
}

func (p pager) Write(b []byte) (int, error) {
	select {
	case <-p.full:
	default:
		close(p.full)
		<-p.key
	}
	return p.buffer.Write(b)
}

func TestFollowAcrossARotationWhileThePagerPauses(t *testing.T) {
	f := newFake(t)
	f.addPod("uid", nil)
	c := f.start(t, "uid", "app", line("one"))
	out := pager{&buffer{}, make(chan struct{}), make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1) // the result
	go func() { done <- f.Logs(ctx, web, LogOptions{Tail: -1, Follow: true, Notes: io.Discard}, out) }()
	<-out.full
	if err := os.Rename(c.LogPath, c.LogPath+".1"); err != nil {
		t.Fatal(err)
	}
	write(t, c.LogPath, line("two"))
	close(out.key)
	out.await(t, "one\ntwo\n")
	write(t, c.LogPath, line("three"))
	out.await(t, "one\ntwo\nthree\n")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A pod that may write below /var/log need not replace a log before somebody looks.
func TestALogThatSomebodyReplacesWhileItIsFollowed(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"a link": func(path string) error { return os.Symlink(path+".1", path) },
		"a pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.addPod("uid", nil)
			c := f.start(t, "uid", "app", line("one"))
			out, done := f.followIn(t.Context(), io.Discard)
			out.await(t, "one\n")
			if err := os.Rename(c.LogPath, c.LogPath+".1"); err != nil {
				t.Fatal(err)
			}
			if err := put(c.LogPath); err != nil {
				t.Fatal(err)
			}
			expect(t, <-done, cli.Failed, "is no file, as containerd writes it")
		})
	}
}

// Between two looks, an app may restart more than once.
func TestFollowLosesNoRun(t *testing.T) {
	f := newFake(t)
	f.addPod("uid", nil)
	c := f.start(t, "uid", "app", line("one"))
	ctx, cancel := context.WithCancel(t.Context())
	out, done := f.followIn(ctx, io.Discard)
	out.await(t, "one\n")
	second := f.start(t, "uid", "app", line("two"))
	f.end(second, 1)
	starting := f.start(t, "uid", "app", line("three"))
	f.mu.Lock()
	path := starting.LogPath
	starting.State, starting.LogPath = runtimeapi.ContainerState_CONTAINER_CREATED, ""
	f.mu.Unlock()
	f.end(c, 1)
	out.await(t, "one\ntwo\n")
	f.mu.Lock()
	starting.State, starting.LogPath = runtimeapi.ContainerState_CONTAINER_RUNNING, path
	f.mu.Unlock()
	out.await(t, "one\ntwo\nthree\n")
	cancel()
	if err := <-done; err != nil {
		t.Errorf("interrupted: %v", err)
	}
}

// containerd's restart ends no container, and no log.
func TestFollowWhileContainerdRestarts(t *testing.T) {
	f := newFake(t)
	f.addPod("uid", nil)
	c := f.start(t, "uid", "app", line("one"))
	ctx, cancel := context.WithCancel(t.Context())
	out, done := f.followIn(ctx, io.Discard)
	out.await(t, "one\n")
	f.restarting(true, false)
	write(t, c.LogPath, line("two"))
	out.await(t, "one\ntwo\n")
	_, err := f.find(ctx, web, "")
	expect(t, err, cli.Failed, "list containers: containerd: down")
	f.restarting(false, true)
	f.end(c, 1)
	write(t, c.LogPath, line("last words"))
	out.await(t, "one\ntwo\nlast words\n")
	write(t, c.LogPath, line("really")) // it has looked for the next container in vain
	out.await(t, "one\ntwo\nlast words\nreally\n")
	f.restarting(false, false)
	f.start(t, "uid", "app", line("three"))
	out.await(t, "one\ntwo\nlast words\nreally\nthree\n")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
