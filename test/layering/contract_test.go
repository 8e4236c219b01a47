package layering

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// contract matches what cloud, node and their users know each other by: keys of annotations, labels and conditions, types of a
// pod's conditions, and paths of the node's API. ota/api has what two sides need.
var contract = regexp.MustCompile(`^(([a-z0-9-]+\.)*(openyurt|edgehub)\.io/[\w-]+|Pod(NeedUpgrade|ImageReady|RolledBack|UpgradedOffline|OfflineUpgradeReconciled)|/openyurt\.io/.*)$`)

// repeats returns the strings of the contract that stand more than once.
func repeats(files map[string]string) ([]string, error) {
	places := map[string][]string{}
	for path, source := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil && contract.MatchString(text) {
					places[text] = append(places[text], path)
				}
			}
			return true
		})
	}
	var found []string
	for text, in := range places {
		if slices.Sort(in); len(in) > 1 {
			found = append(found, fmt.Sprintf("%q stands in %s: let one name it for the others", text, strings.Join(in, ", ")))
		}
	}
	slices.Sort(found)
	return found, nil
}

func TestWhatCloudAndNodeSayStandsOnce(t *testing.T) {
	files, product := map[string]string{}, os.DirFS("../..")
	err := fs.WalkDir(product, ".", func(path string, _ fs.DirEntry, err error) error {
		if path == "test" {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := fs.ReadFile(product, path)
		files[path] = string(source)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found, err := repeats(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Error(v)
	}
}

func TestWhatStandsTwiceIsFound(t *testing.T) {
	found, err := repeats(map[string]string{
		"a.go": `package a; const hold, path, once = "apps.openyurt.io/upgrade-hold", "/openyurt.io/v1/x", "apps.openyurt.io/once"`,
		"b.go": `package b; var hold = f("apps.openyurt.io/upgrade-hold", "sets apps.openyurt.io/once", "/openyurt.io/v1/x", "PodNeedUpgrade")`,
		"c.go": `package c; const need = "PodNeedUpgrade"`,
	})
	want := []string{
		`"/openyurt.io/v1/x" stands in a.go, b.go: let one name it for the others`,
		`"PodNeedUpgrade" stands in b.go, c.go: let one name it for the others`,
		`"apps.openyurt.io/upgrade-hold" stands in a.go, b.go: let one name it for the others`,
	}
	if err != nil || !slices.Equal(found, want) {
		t.Errorf("got  %q, %v\nwant %q", found, err, want)
	}
}
