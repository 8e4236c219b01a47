package job

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func newJob() *Job {
	return &Job{UID: "whole", Namespace: "ns", Pod: "web-1", Revision: "v2", Images: []Image{{Image: "app"}}}
}

// within fails the test if do never ends. Opening a FIFO waits for its other end, and reading from a device may
// never end. Neither must keep the hub from starting.
func within(t *testing.T, do func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("not within two minutes")
	}
}

func TestWhatIsNoJobIsMovedAside(t *testing.T) {
	content := func(text string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	places := map[string]func(path string) error{
		"half a file":        content(`{"uid":"bad","namespace":"n`),
		"a file of another":  content(`{"uid":"x","namespace":"ns","pod":"p","revision":"v","images":[{}]}`),
		"a job for no image": content(`{"uid":"bad","namespace":"ns","pod":"p","revision":"v"}`),
		"a FIFO":             func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a socket":           bindSocket,
		"a folder":           func(path string) error { return os.MkdirAll(filepath.Join(path, "in.json"), 0o700) },
		"a device":           func(path string) error { return os.Symlink("/dev/zero", path) },
		"a large file":       func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) },
	}
	for name, put := range places {
		t.Run(name, func(t *testing.T) {
			f := Store{t.TempDir(), slog.New(slog.DiscardHandler)}
			path := filepath.Join(f.dir, "bad.json")
			if err := errors.Join(f.Save(newJob()), put(path), os.WriteFile(path+".new", nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			within(t, func() error {
				jobs, err := f.Load()
				if len(jobs) != 1 {
					t.Errorf("%d jobs; want the one that is whole", len(jobs))
				}
				return err
			})
			if _, err := os.Lstat(path + ".damaged"); err != nil {
				t.Error(err)
			}
		})
	}
}

func bindSocket(path string) error {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	return errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Close(fd))
}

func TestWhatStandsWhereAJobIsWritten(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	places := map[string]func(path string) error{
		"a FIFO":    func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a symlink": func(path string) error { return os.Symlink(victim, path) },
	}
	for name, put := range places {
		t.Run(name, func(t *testing.T) {
			f := Store{t.TempDir(), slog.New(slog.DiscardHandler)}
			path := f.path("whole")
			if err := errors.Join(put(path), put(path+".new")); err != nil {
				t.Fatal(err)
			}
			within(t, func() error { return f.Save(newJob()) })
			if jobs, err := f.Load(); err != nil || len(jobs) != 1 {
				t.Errorf("%d jobs, %v", len(jobs), err)
			}
			if raw, err := os.ReadFile(victim); err != nil || string(raw) != "precious" {
				t.Errorf("another file was written to: %q, %v", raw, err)
			}
		})
	}
}

// A job whose file would be too large to read is refused.
func TestAJobThatIsTooLargeIsRefused(t *testing.T) {
	j := newJob()
	j.Images[0].Image = strings.Repeat("a", MaxFileSize)
	f := Store{t.TempDir(), slog.New(slog.DiscardHandler)}
	if err := f.Save(j); err == nil || len(err.Error()) > 1000 {
		t.Errorf("got %v", err)
	}
}
