// Command chart draws the SVG charts in docs/images, and writes the table and the charts'
// descriptions in docs/benchmarks.md, from the results of the benchmark in test/bench/results.json and from the measurements of
// YurtHub in docs/comparison.md. A test fails when what it wrote is out of date.
package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/edgehub-io/edgehub/test/bench/results"
)

func main() {
	if err := run("..", os.Stdout); err != nil { // from test, as make charts runs it
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// run writes the files that are out of date, and names them.
func run(root string, log io.Writer) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(root, name)
		if old, err := os.ReadFile(path); err == nil && string(old) == files[name] {
			continue
		}
		if err := os.WriteFile(path, []byte(files[name]), 0o644); err != nil {
			return err
		}
		fmt.Fprintln(log, "wrote", name)
	}
	return nil
}

// generate returns the content of each file, by its path from root, the repository.
func generate(root string) (map[string]string, error) {
	rows, err := results.Load(root + "/test/bench/results.json")
	if err != nil {
		return nil, err
	}
	comparison, err := os.ReadFile(root + "/docs/comparison.md")
	if err != nil {
		return nil, err
	}
	page, err := os.ReadFile(root + "/docs/benchmarks.md")
	if err != nil {
		return nil, err
	}
	charts, err := charts(rows, string(comparison))
	if err != nil {
		return nil, err
	}
	text, err := replaceTable(string(page), rows)
	if err != nil {
		return nil, fmt.Errorf("docs/benchmarks.md: %w", err)
	}
	files := map[string]string{"docs/benchmarks.md": replacePictures(text, charts)}
	for _, c := range charts {
		for _, t := range []theme{light(), dark()} {
			files["docs/images/"+c.name+"-"+t.name+".svg"] = c.draw(t)
		}
	}
	return files, nil
}
