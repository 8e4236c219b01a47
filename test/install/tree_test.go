package install

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// tree is what an install could change, by path: kind, mode, owner, and the contents'
// sum or the link's target.
type tree map[string]string

func (n *node) tree() tree {
	n.t.Helper()
	t := tree{}
	for _, root := range []string{"/etc", "/usr/local/bin", "/usr/lib/test-units"} {
		err := filepath.WalkDir(n.Path(root), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			text, err := describe(path, info)
			t[strings.TrimPrefix(path, n.Path("/"))] = text
			return err
		})
		if err != nil {
			n.t.Fatal(err)
		}
	}
	for _, folder := range []string{"/var/lib", "/run"} {
		entries, err := os.ReadDir(n.Path(folder))
		if err != nil {
			n.t.Fatal(err)
		}
		for _, e := range entries {
			t[folder+"/"+e.Name()] = e.Type().String()
		}
	}
	return t
}

func describe(path string, info fs.FileInfo) (string, error) {
	stat := info.Sys().(*syscall.Stat_t)
	text := fmt.Sprintf("%v %d:%d ", info.Mode(), stat.Uid, stat.Gid)
	switch {
	case info.Mode().IsRegular():
		content, err := os.ReadFile(path)
		return text + fmt.Sprintf("%x", sha256.Sum256(content)), err
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		return text + target, err
	}
	return text, nil
}

// unchanged fails the test with what is different from before; ignored are paths.
func (n *node) unchanged(before tree, ignored ...string) {
	n.t.Helper()
	now := n.tree()
	all := maps.Clone(before)
	maps.Copy(all, now)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if before[path] != now[path] && !slices.Contains(ignored, path) {
			n.t.Errorf("%s was %q and is %q", path, before[path], now[path])
		}
	}
}
