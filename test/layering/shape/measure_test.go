package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFileRefersToThoseWhoseDeclarationsItUses(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":    "module example.com/m\n\ngo 1.24\n",
		"a.go":      "package m\n\nimport \"fmt\"\n\ntype door struct{ open bool }\n\nfunc (d door) shut() { fmt.Println(wall) }\n",
		"b.go":      "package m\n\nvar wall = 1\n\nfunc build() {\n\tdoor{}.shut()\n}\n",
		"c.go":      "package m\n\nfunc field() bool { return newDoor().open }\n",
		"d.go":      "package m\n\nfunc newDoor() door { return door{} }\n",
		"e_test.go": "package m\n\nvar tested = wall\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	shapes, err := measure(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(shapes) != 1 {
		t.Fatalf("measured %d packages, want 1", len(shapes))
	}
	s := shapes[0]
	// a -> b, b -> a, c -> d, c -> a (by a field), d -> a.
	if s.References != 5 || s.Mutual != 2 {
		t.Errorf("%d references, %d of them mutual, want 5 and 2", s.References, s.Mutual)
	}
	if len(s.Files) != 4 || len(s.Functions) != 4 {
		t.Errorf("%d files, %d functions, want 4 and 4: tests do not count", len(s.Files), len(s.Functions))
	}
	var out strings.Builder
	report(&out, shapes)
	if !strings.Contains(out.String(), "1 packages, 4 files, 20 lines; 5 references between files of a package, 1.2 a file") {
		t.Errorf("printed:\n%s", out.String())
	}
}
