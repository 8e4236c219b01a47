// Package layering holds no code: its tests keep the packages of the product in
// their layers, and keep out dependencies that cost a node more than they give.
// Each rule stands with its reason. A rule that is in the way is changed in the
// same commit as the code, where review sees it.
package layering

import (
	"slices"
	"testing"
)

func TestPackagesStayInTheirLayer(t *testing.T) {
	for _, v := range layerViolations(listPackages(t), layers) {
		t.Error(v)
	}
}

func TestProgramsLeaveOutWhatCostsTooMuch(t *testing.T) {
	packages := listPackages(t)
	programs := mains(packages)
	if len(programs) < 2 {
		t.Fatalf("found programs %q, want edgehub and edgehub-controller", programs)
	}
	for _, program := range programs {
		for _, v := range costViolations(packages, program, tooCostly) {
			t.Error(v)
		}
	}
}

func TestDependenciesAreOnesWeChose(t *testing.T) {
	for _, v := range choiceViolations(listPackages(t), chosen) {
		t.Error(v)
	}
}

// The rules are tried on small graphs that break them: a rule that finds nothing
// there finds nothing in the product either.
func TestRulesFindWhatBreaksThem(t *testing.T) {
	const mod = module + "/"
	graph := func(imports map[string][]string) map[string]pkg {
		packages := map[string]pkg{}
		for path, list := range imports {
			packages[path] = pkg{ImportPath: path, Name: "p", Imports: list}
		}
		return packages
	}
	layersOf := func(p map[string]pkg) []string {
		return layerViolations(p, map[string][]string{"hub": {"ota/api", "proxy"}, "ota": {"ota/api"}, "ota/api": {}, "proxy": {}})
	}
	tests := map[string]struct {
		imports map[string][]string
		find    func(map[string]pkg) []string
		want    []string
	}{
		"what the layers allow": {
			map[string][]string{mod + "hub": {mod + "proxy", mod + "ota/api", "fmt"}, mod + "ota/queue": {mod + "ota/api"}},
			layersOf, nil,
		},
		"imports that the layers do not allow": {
			map[string][]string{mod + "hub/x": {mod + "ota"}, mod + "ota": {mod + "proxy", mod + "ota/api"}, mod + "ota/api": {mod + "hub/x"}},
			layersOf,
			[]string{
				"hub/x imports ota, which its layer does not allow: it may import ota/api, proxy",
				"ota imports proxy, which its layer does not allow: it may import ota/api",
				"ota/api imports hub/x, which its layer does not allow: it may import no other package of the product",
			},
		},
		"a package without a layer": {
			map[string][]string{mod + "util": nil}, layersOf, []string{"util is in no layer: give it one in rules_test.go"},
		},
		"a costly package behind another one": {
			map[string][]string{mod + "cmd/edgehub": {"a.example/a"}, "a.example/a": {"golang.org/x/net/trace"}, "golang.org/x/net/trace": nil},
			func(p map[string]pkg) []string { return costViolations(p, mod+"cmd/edgehub", tooCostly) },
			[]string{"cmd/edgehub depends on golang.org/x/net/trace (cmd/edgehub → a.example/a → golang.org/x/net/trace): " + tooCostly["golang.org/x/net/trace"]},
		},
		"a costly package's children": {
			map[string][]string{mod + "cmd/edgehub": {"k8s.io/kubernetes/pkg/x"}, "k8s.io/kubernetes/pkg/x": nil},
			func(p map[string]pkg) []string { return costViolations(p, mod+"cmd/edgehub", tooCostly) },
			[]string{"cmd/edgehub depends on k8s.io/kubernetes/pkg/x (cmd/edgehub → k8s.io/kubernetes/pkg/x): " + tooCostly["k8s.io/kubernetes"]},
		},
		"a name that only begins the same": {
			map[string][]string{mod + "cmd/edgehub": {"k8s.io/kubernetes-else"}, "k8s.io/kubernetes-else": nil},
			func(p map[string]pkg) []string { return costViolations(p, mod+"cmd/edgehub", tooCostly) },
			nil,
		},
		"a dependency that no one chose": {
			map[string][]string{mod + "hub": {"fmt", "github.com/other/thing"}},
			func(p map[string]pkg) []string { return choiceViolations(p, chosen) },
			[]string{"hub imports github.com/other/thing, which no one chose: add it to rules_test.go with the reason, or do without"},
		},
		"a dependency chosen for another package": {
			map[string][]string{mod + "hub": {"github.com/gorilla/mux"}},
			func(p map[string]pkg) []string { return choiceViolations(p, chosen) },
			[]string{"hub imports github.com/gorilla/mux, which is for ota only"},
		},
		"a part of a module of which only another part was chosen": {
			map[string][]string{mod + "proxy": {"k8s.io/apiserver/pkg/endpoints/request", "k8s.io/apiserver/pkg/server"}},
			func(p map[string]pkg) []string { return choiceViolations(p, chosen) },
			[]string{"proxy imports k8s.io/apiserver/pkg/server, which no one chose: add it to rules_test.go with the reason, or do without"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.find(graph(tt.imports)); !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}
