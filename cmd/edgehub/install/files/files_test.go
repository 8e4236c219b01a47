package files

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWrittenEntriesAreReadBack(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	owner := Entry{UID: os.Getuid(), GID: os.Getgid()}
	for name, c := range map[string]struct {
		path    string
		entry   Entry
		content string
	}{
		"a file of mode 0600": {file, Entry{Kind: KindFile, Mode: 0o600, Sum: Sum([]byte("a")), UID: owner.UID, GID: owner.GID}, "a"},
		"a file of mode 0755": {file, Entry{Kind: KindFile, Mode: 0o755, Sum: Sum([]byte("b")), UID: owner.UID, GID: owner.GID}, "b"},
		"a link":              {link, Entry{Kind: KindLink, Target: file, UID: owner.UID, GID: owner.GID}, ""},
		"nothing":             {file, Entry{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Write(c.path, c.entry, []byte(c.content)); err != nil {
				t.Fatal(err)
			}
			if ok, err := Same(c.path, c.entry); err != nil || !ok {
				now, _, _ := Read(c.path)
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

func TestAFolderIsNotReadAsAFile(t *testing.T) {
	if _, _, err := Read(t.TempDir()); err == nil {
		t.Error("a folder is taken for a file")
	}
}

func TestMissingFoldersAreReturnedOutermostFirst(t *testing.T) {
	dir := t.TempDir()
	got := MissingDirs(filepath.Join(dir, "a", "b", "file"))
	if want := []string{filepath.Join(dir, "a"), filepath.Join(dir, "a", "b")}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}
