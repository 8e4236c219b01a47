package install

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWhatIsPutIsThere(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	owner := entry{UID: os.Getuid(), GID: os.Getgid()}
	for name, c := range map[string]struct {
		path    string
		entry   entry
		content string
	}{
		"a file of mode 0600": {file, entry{Kind: kindFile, Mode: 0o600, Sum: sumOf([]byte("a")), UID: owner.UID, GID: owner.GID}, "a"},
		"a file of mode 0755": {file, entry{Kind: kindFile, Mode: 0o755, Sum: sumOf([]byte("b")), UID: owner.UID, GID: owner.GID}, "b"},
		"a link":              {link, entry{Kind: kindLink, Target: file, UID: owner.UID, GID: owner.GID}, ""},
		"nothing":             {file, entry{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := put(c.path, c.entry, []byte(c.content)); err != nil {
				t.Fatal(err)
			}
			if ok, err := same(c.path, c.entry); err != nil || !ok {
				now, _, _ := look(c.path)
				t.Errorf("there is %+v, %v; it should be %+v", now, err, c.entry)
			}
		})
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), "edgehub-new") {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}

func TestAFolderInTheWayIsNoFile(t *testing.T) {
	if _, _, err := look(t.TempDir()); err == nil {
		t.Error("a folder is taken for a file")
	}
}

func TestMissingFoldersAreNamedFromTheOutside(t *testing.T) {
	dir := t.TempDir()
	got := missingFolders(filepath.Join(dir, "a", "b", "file"))
	if want := []string{filepath.Join(dir, "a"), filepath.Join(dir, "a", "b")}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}
