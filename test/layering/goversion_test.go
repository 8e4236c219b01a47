package layering

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var goLine = regexp.MustCompile(`(?m)^go (\S+)$`)

// Where Go fetches the version that a go.mod names, modules that name another are built by
// another, and what test/cluster keeps is built once for each.
func TestEveryModuleNamesTheSameGo(t *testing.T) {
	const root = "../.."
	modules := map[string][]string{} // by version
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "go.mod" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		version := ""
		if found := goLine.FindSubmatch(content); found != nil {
			version = string(found[1])
		}
		modules[version] = append(modules[version], path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(modules) != 1 || len(modules[""]) > 0 {
		t.Errorf("versions of Go, and who names them: %v", modules)
	}
}
