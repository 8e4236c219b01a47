package layering

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

// pkg is what `go list -json` prints of a package, as far as it is read here.
type pkg struct {
	ImportPath string
	Name       string
	Imports    []string
}

// listPackages returns the product's packages and all they depend on, as they
// are built for a node, by import path. Test files are not looked at.
func listPackages(t *testing.T) map[string]pkg {
	t.Helper()
	packages, err := goList()
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

// goList lists them once for all tests.
var goList = sync.OnceValues(func() (map[string]pkg, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Name,Imports", "-tags=grpcnotrace", "./...")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.String())
	}
	packages := map[string]pkg{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what go list printed: %w", err)
		}
		packages[p.ImportPath] = p
	}
})

// mains returns the product's programs.
func mains(packages map[string]pkg) []string {
	var programs []string
	for _, p := range own(packages) {
		if p.Name == "main" {
			programs = append(programs, p.ImportPath)
		}
	}
	return programs
}

func layerViolations(packages map[string]pkg, layers map[string][]string) []string {
	var found []string
	for _, p := range own(packages) {
		layer, ok := layerOf(p.ImportPath, layers)
		if !ok {
			found = append(found, short(p.ImportPath)+" is in no layer: give it one in rules_test.go")
			continue
		}
		for _, imported := range slices.Sorted(slices.Values(p.Imports)) {
			if !isOwn(imported) {
				continue
			}
			to, _ := layerOf(imported, layers)
			if to != layer && !slices.Contains(layers[layer], to) {
				found = append(found, fmt.Sprintf("%s imports %s, which its layer does not allow: it may import %s",
					short(p.ImportPath), short(imported), cmp.Or(strings.Join(layers[layer], ", "), "no other package of the product")))
			}
		}
	}
	return found
}

func costViolations(packages map[string]pkg, program string, tooCostly map[string]string) []string {
	var found []string
	importedBy := reach(packages, program)
	for _, path := range slices.Sorted(maps.Keys(importedBy)) {
		if rule, ok := longestPrefix(path, maps.Keys(tooCostly)); ok {
			found = append(found, fmt.Sprintf("%s depends on %s (%s): %s", short(program), path, chain(importedBy, path), tooCostly[rule]))
		}
	}
	return found
}

func choiceViolations(packages map[string]pkg, chosen map[string]dependency) []string {
	var found []string
	for _, p := range own(packages) {
		layer, _ := layerOf(p.ImportPath, layers)
		for _, imported := range slices.Sorted(slices.Values(p.Imports)) {
			if isOwn(imported) || isStandard(imported) {
				continue
			}
			rule, ok := longestPrefix(imported, maps.Keys(chosen))
			switch only := chosen[rule].only; {
			case !ok:
				found = append(found, fmt.Sprintf("%s imports %s, which no one chose: add it to rules_test.go with the reason, or do without", short(p.ImportPath), imported))
			case len(only) > 0 && !slices.Contains(only, layer):
				found = append(found, fmt.Sprintf("%s imports %s, which is for %s only", short(p.ImportPath), imported, strings.Join(only, ", ")))
			}
		}
	}
	return found
}

// reach returns every package that program depends on, with one that imports it
// on a shortest way from program.
func reach(packages map[string]pkg, program string) map[string]string {
	importedBy := map[string]string{program: ""}
	for queue := []string{program}; len(queue) > 0; queue = queue[1:] {
		for _, imported := range packages[queue[0]].Imports {
			if _, seen := importedBy[imported]; !seen {
				importedBy[imported] = queue[0]
				queue = append(queue, imported)
			}
		}
	}
	return importedBy
}

// chain shows how path came in.
func chain(importedBy map[string]string, path string) string {
	var links []string
	for ; path != ""; path = importedBy[path] {
		links = append(links, short(path))
	}
	slices.Reverse(links)
	return strings.Join(links, " → ")
}

// own returns the product's packages, sorted by path.
func own(packages map[string]pkg) []pkg {
	var list []pkg
	for _, path := range slices.Sorted(maps.Keys(packages)) {
		if isOwn(path) {
			list = append(list, packages[path])
		}
	}
	return list
}

func layerOf(path string, layers map[string][]string) (string, bool) {
	return longestPrefix(short(path), maps.Keys(layers))
}

// longestPrefix returns the longest of folders that is path or holds it.
func longestPrefix(path string, folders func(yield func(string) bool)) (longest string, ok bool) {
	for f := range folders {
		if (path == f || strings.HasPrefix(path, f+"/")) && len(f) > len(longest) {
			longest, ok = f, true
		}
	}
	return longest, ok
}

func isOwn(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

// isStandard recognises the standard library by its first element, which has no dot.
func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// short is an import path as it is written in rules_test.go.
func short(path string) string { return strings.TrimPrefix(path, module+"/") }
