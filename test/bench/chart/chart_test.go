package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/test/bench/results"
)

const root = "../../.."

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	files, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || string(got) != want {
			t.Errorf("%s is not what the results in test/bench/results.json make of it: run make charts (%v)", name, err)
		}
	}
}

func TestChartsAreSmallAndAccessible(t *testing.T) {
	files, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	charts := 0
	for name, content := range files {
		if !strings.HasSuffix(name, ".svg") {
			continue
		}
		charts++
		if len(content) > 20_000 {
			t.Errorf("%s has %d bytes", name, len(content))
		}
		elements := map[string]int{}
		for decoder := xml.NewDecoder(strings.NewReader(content)); ; {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if start, ok := token.(xml.StartElement); ok {
				elements[start.Name.Local]++
			}
		}
		if elements["title"] != 1 || elements["desc"] != 1 || elements["text"] < 10 {
			t.Errorf("%s has %v; want a title, a description and its words as text", name, elements)
		}
	}
	if charts != 6 {
		t.Errorf("got %d charts, want three in two themes", charts)
	}
}

// The comparison with YurtHub repeats figures of the benchmark.
func TestComparisonHasTheFiguresOfTheBenchmark(t *testing.T) {
	rows, err := results.Load(root + "/test/bench/results.json")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(root + "/docs/comparison.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, same := range []struct{ compared, part, name string }{
		{"LIST of 5,000 pods offline", "offline", "offline LIST 5000 pods, beside plain bytes"},
		{"memory with 5,000 pods, 1,000 Services and 1,000 EndpointSlices", "memory", "resident, 5000 pods, 1000 services, 1000 slices, 9 watches"},
	} {
		_, edgehub, err := comparisonRow(string(page), same.compared)
		row := results.Find(rows, same.part, same.name)
		if err != nil || row == nil {
			t.Fatal(same, err)
		}
		if want := fmt.Sprintf("%.0f %s", row.Value, row.Unit); edgehub.text != want {
			t.Errorf("docs/comparison.md says %q of %q; the benchmark says %q", edgehub.text, same.compared, want)
		}
	}
}

func TestOldFiguresAreReplaced(t *testing.T) {
	rows, err := results.Load(root + "/test/bench/results.json")
	if err != nil {
		t.Fatal(err)
	}
	page, errPage := os.ReadFile(root + "/docs/benchmarks.md")
	comparison, errComparison := os.ReadFile(root + "/docs/comparison.md")
	all, errCharts := charts(rows, string(comparison))
	old := strings.NewReplacer("ok: within", "FAILS: over", `<img alt="`, `<img alt="Another `).Replace(string(page))
	got, errTable := replaceTable(old, rows)
	if err := errors.Join(errPage, errComparison, errCharts, errTable); err != nil {
		t.Fatal(err)
	}
	if got = replacePictures(got, all); got != string(page) || old == got {
		t.Errorf("got %q, want %q", got, page)
	}
	if _, err := replaceTable("no table", rows); err == nil {
		t.Error("a page without the section is accepted")
	}
}

func TestFiguresOfTheComparison(t *testing.T) {
	const page = "| | direct | bare proxy | YurtHub | edgehub |\n| GET | 1 ms | | **0.1–1.1 s**, slow | at most 2.6 s |\n| PUT | | | often | 3 ms |\n"
	yurthub, edgehub, err := comparisonRow(page, "GET")
	if want := (measured{"0.1–1.1 s", 0.1, 1.1}); err != nil || yurthub != want {
		t.Errorf("YurtHub: got %+v, %v; want %+v", yurthub, err, want)
	}
	if want := (measured{"at most 2.6 s", 2.6, 2.6}); edgehub != want {
		t.Errorf("edgehub: got %+v, want %+v", edgehub, want)
	}
	for _, name := range []string{"PUT", "POST"} {
		if _, _, err := comparisonRow(page, name); err == nil {
			t.Errorf("%s: no figure, and no error", name)
		}
	}
}
