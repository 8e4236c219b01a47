package docs

import (
	"slices"
	"strings"
	"testing"
)

// What the READMEs show of the demo is from the run that docs/demo.md shows.
func TestTheDemoOfTheREADMEsIsThatOfItsPage(t *testing.T) {
	output := demoOutput(t, "docs/demo.md")
	for _, path := range []string{"README.md", "README.zh.md"} {
		for _, line := range demoOutput(t, path) {
			if line != "…" && !slices.Contains(output, line) {
				t.Errorf("%s: the demo of docs/demo.md does not print %q", path, line)
			}
		}
	}
}

// demoOutput returns the lines of the demo's output on a page: its first block that begins with
// the seconds of a step.
func demoOutput(t *testing.T, path string) []string {
	t.Helper()
	for _, block := range strings.Split(read(t, path), "\n```\n") {
		if lines := strings.Split(block, "\n"); strings.Contains(lines[0], " s  ") {
			return lines
		}
	}
	t.Fatalf("%s shows no output of the demo", path)
	return nil
}
