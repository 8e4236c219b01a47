package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testsOf are the names of a folder's tests, by the files' declarations.
func testsOf(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var tests []string
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range parsed.Decls {
			if name, ok := testName(declaration); ok {
				tests = append(tests, name)
			}
		}
	}
	return tests
}

// covers reports whether a step runs a test of a folder below the checkout.
func (st step) covers(folder, test string) bool {
	match := func(prefix string) (pattern string, matches bool) {
		for _, arg := range st.args {
			if value, ok := strings.CutPrefix(arg, prefix); ok {
				pattern, _, _ = strings.Cut(value, "/")
				return value, regexp.MustCompile(pattern).MatchString(test)
			}
		}
		return "", false
	}
	if pattern, matches := match("-run="); pattern != "" && !matches {
		return false
	}
	if _, skipped := match("-skip="); skipped {
		return false
	}
	return slices.ContainsFunc(st.args, func(arg string) bool {
		name, recursive := strings.CutSuffix(arg, "/...")
		name = path.Join(st.dir, name)
		return strings.HasPrefix(arg, "./") && (name == folder || recursive && (name == "." || strings.HasPrefix(folder, name+"/")))
	})
}

// Every test of the repository runs in some suite, and no suite waits for a test that is gone.
func TestEveryTestHasASuite(t *testing.T) {
	root := os.DirFS("../..")
	unused := map[string]bool{} // "suite -run=…", until a test matches
	for _, s := range all() {
		for _, st := range s.steps {
			for _, arg := range st.args {
				if strings.HasPrefix(arg, "./") {
					unused[s.name+" "+arg] = true
				}
			}
		}
	}
	total := 0
	err := fs.WalkDir(root, ".", func(folder string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		if name := entry.Name(); name == "testdata" || len(name) > 1 && name[0] == '.' {
			return fs.SkipDir
		}
		for _, test := range testsOf(t, filepath.Join("..", "..", folder)) {
			total++
			suites := 0
			for _, s := range all() {
				for _, st := range s.steps {
					if st.covers(folder, test) {
						suites++
						markUsed(unused, s, st, folder)
					}
				}
			}
			if suites == 0 {
				t.Errorf("%s of %s runs in no suite", test, folder)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if total < 1000 {
		t.Errorf("%d tests were found", total)
	}
	for what := range unused {
		t.Errorf("suite %s: no test is there", what)
	}
}

func markUsed(unused map[string]bool, s suite, st step, folder string) {
	for _, arg := range st.args {
		only := step{dir: st.dir, args: []string{arg}}
		if strings.HasPrefix(arg, "./") && only.covers(folder, "") {
			delete(unused, s.name+" "+arg)
		}
	}
}

// Each test that a suite names in -run is there.
func TestEveryTestThatIsNamedExists(t *testing.T) {
	for _, s := range all() {
		for _, st := range s.steps {
			for _, arg := range st.args {
				pattern, named := strings.CutPrefix(arg, "-run=^(")
				if !named {
					continue
				}
				var folders, tests []string
				for _, folder := range st.args {
					if strings.HasPrefix(folder, "./") {
						folders = append(folders, folder)
						tests = append(tests, testsOf(t, filepath.Join("..", "..", st.dir, folder))...)
					}
				}
				for name := range strings.SplitSeq(strings.TrimSuffix(pattern, ")$"), "|") {
					if !slices.Contains(tests, name) {
						t.Errorf("suite %s: there is no %s in %v", s.name, name, folders)
					}
				}
			}
		}
	}
}

// What a gate's suite may depend on.
func TestTheGateIsNeitherRandomNorMeasured(t *testing.T) {
	names := map[string]bool{}
	for _, s := range all() {
		if s.gate && (s.random || s.quiet) {
			t.Errorf("suite %s is of the gate, and depends on a seed or a quiet machine", s.name)
		}
		if names[s.name] {
			t.Errorf("two suites are named %s", s.name)
		}
		names[s.name] = true
	}
}

// Go's test cache does not see a program that a test starts.
func TestNoResultIsTakenOfAHubThatGoDoesNotSee(t *testing.T) {
	for _, s := range all() {
		for _, st := range s.steps {
			if st.cached && (s.programs || st.dir == "test") {
				t.Errorf("suite %s: %v: an earlier result may be of another hub", s.name, st.args)
			}
		}
	}
}

func TestChoose(t *testing.T) {
	suites := []suite{{name: "a", gate: true}, {name: "b"}, {name: "c", gate: true}, {name: "build", gate: true}, {name: "d", programs: true}}
	for what, c := range map[string]struct {
		o    options
		want string
	}{
		"the gate":                        {options{}, "a c build"},
		"all":                             {options{all: true}, "a b c build d"},
		"what is named, in its own order": {options{all: true, only: []string{"b", "a"}}, "a b"},
		"with the programs that it runs":  {options{only: []string{"d"}}, "build d"},
	} {
		chosen, err := choose(slices.Clone(suites), c.o)
		if got := strings.Join(names(chosen), " "); got != c.want || err != nil {
			t.Errorf("%s: %q, %v; want %q", what, got, err, c.want)
		}
	}
	if _, err := choose(suites, options{only: []string{"x"}}); err == nil || !strings.Contains(err.Error(), `no suite "x"; there are: a, b, c, build, d`) {
		t.Errorf("an unknown suite: %v", err)
	}
}

func testName(declaration ast.Decl) (string, bool) {
	f, ok := declaration.(*ast.FuncDecl)
	if !ok || f.Recv != nil || f.Name.Name == "TestMain" || !strings.HasPrefix(f.Name.Name, "Test") {
		return "", false
	}
	return f.Name.Name, true
}
