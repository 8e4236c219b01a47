package page

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mostBytes is the most that the page's files may have together: a node may be reached over a thin line.
const mostBytes = 60_000

func TestThePageIsSmall(t *testing.T) {
	total := 0
	for _, content := range sources(t) {
		total += len(content)
	}
	t.Logf("the page has %d bytes of %d", total, mostBytes)
	if total == 0 || total > mostBytes {
		t.Errorf("the page has %d bytes, want at most %d", total, mostBytes)
	}
}

// sources are the page's files by name.
func sources(t *testing.T) map[string]string {
	t.Helper()
	entries, err := embedded.ReadDir("files")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, entry := range entries {
		content, err := embedded.ReadFile("files/" + entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		all[entry.Name()] = string(content)
	}
	return all
}

var (
	entry       = regexp.MustCompile(`(?m)^  (\w+): \['(.*)', '(.*)'\],$`)
	placeholder = regexp.MustCompile(`\{\w+\}`)
)

// words are those of text.js by name, in English and Chinese.
func words(t *testing.T) map[string][2]string {
	t.Helper()
	all := map[string][2]string{}
	for _, found := range entry.FindAllStringSubmatch(sources(t)["text.js"], -1) {
		all[found[1]] = [2]string{found[2], found[3]}
	}
	if len(all) < 100 {
		t.Fatalf("only %d words were found: the pattern for them does not fit any more", len(all))
	}
	return all
}

func TestWordsAreInBothLanguagesAndUsed(t *testing.T) {
	code := sources(t)["app.js"] + sources(t)["view.js"]
	shown := states(t)
	for name, both := range words(t) {
		var holes [2][]string
		for i, text := range both {
			holes[i] = slices.Sorted(slices.Values(placeholder.FindAllString(text, -1)))
			if text == "" {
				t.Errorf("%s lacks words: %q", name, both)
			}
		}
		if !slices.Equal(holes[0], holes[1]) {
			t.Errorf("%s has other values in Chinese: %q", name, both)
		}
		kind := strings.TrimSuffix(strings.TrimSuffix(name, "Title"), "Text") // of a dialog
		if !strings.Contains(code, "'"+name+"'") && !slices.Contains(shown, name) && !strings.Contains(code, "act.ask('"+kind+"'") {
			t.Errorf("%s is not used", name)
		}
	}
}

var use = regexp.MustCompile(`\b(?:t\(|parts\(|row\(|add\(|section\(|tell\(app, |label: )'(\w+)'`)

// asked is the kind of a dialog, whose title and text are the words of that name with Title and Text.
var asked = regexp.MustCompile(`\bact\.ask\('(\w+)'`)

func TestEveryWordThatIsUsedIsThere(t *testing.T) {
	known := words(t)
	for _, file := range []string{"app.js", "view.js"} {
		for _, found := range use.FindAllStringSubmatch(sources(t)[file], -1) {
			if _, ok := known[found[1]]; !ok {
				t.Errorf("%s uses %s, for which there are no words", file, found[1])
			}
		}
		for _, found := range asked.FindAllStringSubmatch(sources(t)[file], -1) {
			if _, ok := known[found[1]+"Title"]; !ok {
				t.Errorf("the dialog %s has no title", found[1])
			}
		}
	}
}

// The page would show a state without words as the API names it.
func TestEveryStateOfAnUpgradeHasWords(t *testing.T) {
	known := words(t)
	for _, state := range states(t) {
		if _, ok := known[state]; !ok {
			t.Errorf("%s has no words", state)
		}
	}
}

// states are the actions and states of upgrades.
func states(t *testing.T) []string {
	t.Helper()
	return slices.Concat(constants(t, "../api/upgrades.go", 9, "UpgradeState", "Action"), constants(t, "../api/inplace.go", 5, "InPlaceState"))
}

// A reason that is renamed, or new, would only be told what to do about any other.
func TestEachReasonThatADownloadFailsHasItsHelp(t *testing.T) {
	_, helps, _ := strings.Cut(sources(t)["view.js"], "const helps = {")
	helps, _, _ = strings.Cut(helps, "}")
	var helped []string
	for _, found := range regexp.MustCompile(`(\w+): 'help\w+'`).FindAllStringSubmatch(helps, -1) {
		helped = append(helped, found[1])
	}
	withoutHelp := []string{"ContentCorrupt", "ImageGone", "ContainerdSettings", "PullFailed"}
	got, want := slices.Concat(helped, withoutHelp), constants(t, "../../imagepull/engineapi/error.go", 13, "Reason")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("there is help for %q, and none for %q; the reasons are %q", helped, withoutHelp, want)
	}
}

// constants are the values of a file's constants of these types, of which there are so many at least.
func constants(t *testing.T, name string, least int, types ...string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if of, ok := spec.Type.(*ast.Ident); ok && slices.Contains(types, of.Name) {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, value)
		}
		return true
	})
	if len(all) < least {
		t.Fatalf("only %q were found in %s", all, name)
	}
	return all
}
