// Package reference writes the tables of docs/flags.md and docs/metrics.md from code. Flags
// and some metrics belong to main packages, which nothing can import, so a test in each of
// them makes its own section of a page. The tests fail when a section is not up to date;
// `make docs` has them write it instead.
//
// Only tests import it.
package reference

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// updateVariable is the environment variable that has sections written instead of compared.
const updateVariable = "UPDATE_DOCS"

// Check returns an error unless the section of a page in docs/ has this content. A section
// stands between two comments, which readers do not see:
//
//	<!-- generated: edgehub -->
//	<!-- end -->
func Check(page, section, content string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	file := filepath.Join(root, "docs", page)
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	updated, err := replaceSection(string(text), section, content)
	switch {
	case err != nil:
		return fmt.Errorf("docs/%s: %w", page, err)
	case updated == string(text):
		return nil
	case os.Getenv(updateVariable) != "":
		return os.WriteFile(file, []byte(updated), 0o644)
	}
	return fmt.Errorf("docs/%s: section %q is not up to date: run make docs", page, section)
}

// replaceSection returns text with the content of one section exchanged.
func replaceSection(text, section, content string) (string, error) {
	begin, end := "<!-- generated: "+section+" -->\n", "<!-- end -->\n"
	before, rest, found := strings.Cut(text, begin)
	if !found {
		return "", fmt.Errorf("there is no line %q", strings.TrimSpace(begin))
	}
	_, after, found := strings.Cut(rest, end)
	if !found {
		return "", fmt.Errorf("there is no line %q after %q", strings.TrimSpace(end), strings.TrimSpace(begin))
	}
	return before + begin + "\n" + strings.TrimSpace(content) + "\n\n" + end + after, nil
}

// moduleRoot returns the folder with go.mod, the working directory or one above it.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("there is no go.mod in the working directory or above it")
		}
		dir = parent
	}
}

// table is a table in Markdown.
type table struct{ text strings.Builder }

func newTable(columns ...string) *table {
	t := &table{}
	t.row(columns...)
	t.text.WriteString(strings.Repeat("|---", len(columns)) + "|\n")
	return t
}

func (t *table) row(cells ...string) {
	for _, cell := range cells {
		cell = strings.ReplaceAll(strings.Join(strings.Fields(cell), " "), "|", `\|`)
		t.text.WriteString("| " + cell + " ")
	}
	t.text.WriteString("|\n")
}

func (t *table) String() string { return t.text.String() }

func code(s string) string { return "`" + s + "`" }
