package job

import (
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// The same where a job is to be written.
func TestWhatStandsWhereAJobIsWritten(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	places := map[string]func(path string) error{
		"a FIFO":    func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a symlink": func(path string) error { return os.Symlink(victim, path) },
	}
	for Name, put := range places {
		t.Run(Name, func(t *testing.T) {
			j := &Job{UID: "whole", Namespace: "ns", Pod: "web-1", Revision: "v2", Images: []Image{{Image: "app"}}}
			f := Store{t.TempDir(), slog.New(slog.DiscardHandler)}
			for _, end := range []string{"", ".new"} {
				if err := put(f.path(j.UID) + end); err != nil {
					t.Fatal(err)
				}
			}
			saved := make(chan error, 1)
			go func() { saved <- f.Save(j) }()
			select {
			case err := <-saved:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(2 * time.Minute):
				t.Fatal("the job is still being written")
			}
			if jobs, err := f.Load(); err != nil || len(jobs) != 1 {
				t.Errorf("%d jobs, %v", len(jobs), err)
			}
			if raw, err := os.ReadFile(victim); err != nil || string(raw) != "precious" {
				t.Errorf("another file was written to: %q, %v", raw, err)
			}
		})
	}
}
