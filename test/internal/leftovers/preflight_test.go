package leftovers

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPreflightSaysInOneLineWhatIsShort(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	if os.Geteuid() == 0 {
		if err := unix.Mount("tmpfs", temp, "tmpfs", 0, "size=1m"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(temp, 0) })
	}
	t.Setenv("XDG_CACHE_HOME", filepath.Join(temp, "not", "made", "yet"))
	err := Preflight(true)
	var e *NotReadyError
	if !errors.As(err, &e) || len(e.Shortages) == 0 {
		t.Fatalf("got %v", err)
	}
	text := err.Error()
	t.Log(text)
	want := []string{"disk: " + temp + " has 0.0 GiB free, tests need ", "set TMPDIR or XDG_CACHE_HOME"}
	if os.Geteuid() != 0 {
		want = []string{"not root", "sudo -E make test"}
	}
	for _, words := range want {
		if !strings.Contains(text, words) {
			t.Errorf("it does not say %q", words)
		}
	}
	if strings.Contains(text, "\n") {
		t.Error("it is more than one line")
	}
}
