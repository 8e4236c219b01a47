// Package docs holds no code: its tests check what the pages for readers mention. Links and
// anchors lead somewhere; flags, metrics, alerts, annotations, tests, make targets and
// folders exist; versions agree; quoted messages are what programs write. What belongs to
// another program is listed in others_test.go with the name of that program.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the repository.
const root = "../.."

// page is one Markdown file.
type page struct {
	path string // from the root
	text string
}

// pages returns all Markdown files of the repository.
func pages(t *testing.T) []page {
	t.Helper()
	var all []page
	walk(t, func(path string) {
		if strings.HasSuffix(path, ".md") {
			all = append(all, page{path, read(t, path)})
		}
	})
	if len(all) < 5 {
		t.Fatalf("found only %d pages below %s", len(all), root)
	}
	return all
}

// currentPages leaves out the pages about earlier releases: they name what is no more.
func currentPages(t *testing.T) []page {
	t.Helper()
	var current []page
	for _, p := range pages(t) {
		if p.path != "CHANGELOG.md" && p.path != "docs/upgrading.md" {
			current = append(current, p)
		}
	}
	return current
}

// walk calls visit with each source file, by its path from the root.
func walk(t *testing.T, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := entry.Name(); {
		case entry.IsDir() && (name == ".git" || name == "node_modules" || name == "dist" && filepath.Dir(path) == root || name == "bin"):
			return filepath.SkipDir
		case entry.Type().IsRegular():
			path, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			visit(filepath.ToSlash(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func exists(path string) bool {
	_, err := os.Stat(filepath.Join(root, path))
	return err == nil
}

var inlineCode = regexp.MustCompile("`[^`\n]+`")

// prose is text without code.
func prose(text string) string {
	return inlineCode.ReplaceAllString(withoutBlocks(text), "")
}

// withoutBlocks is text without what stands between lines with three backquotes.
func withoutBlocks(text string) string {
	var out strings.Builder
	inBlock := false
	for line := range strings.Lines(text) {
		isFence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if !inBlock && !isFence {
			out.WriteString(line)
		}
		inBlock = inBlock != isFence
	}
	return out.String()
}
