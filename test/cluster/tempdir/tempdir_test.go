package tempdir_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/edgehub-io/edgehub/test/cluster/tempdir"
)

// TestAbandoned looks for folders that nobody has, beside one that is held, one of another user's,
// and a link.
func TestAbandoned(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	held, left := newDir(t), newDir(t)
	if err := left.Release(); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(left.Path, filepath.Join(os.TempDir(), tempdir.Prefix+"link")); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		other := newDir(t)
		if err := other.Release(); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(other.Path, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	all, err := tempdir.Abandoned()
	if err != nil || len(all) != 1 || all[0].Path != left.Path {
		t.Fatalf("got %v, %v; want %s alone, and not %s", paths(all), err, left.Path, held.Path)
	}
	if again, err := tempdir.Abandoned(); err != nil || len(again) != 0 {
		t.Errorf("what was taken is taken again: %v, %v", paths(again), err)
	}
	if err := all[0].Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(left.Path); !os.IsNotExist(err) {
		t.Errorf("after Remove: %v", err)
	}
}

func newDir(t *testing.T) *tempdir.Dir {
	t.Helper()
	dir, err := tempdir.Make("test")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func paths(all []*tempdir.Dir) []string {
	var names []string
	for _, dir := range all {
		names = append(names, dir.Path)
	}
	return names
}
