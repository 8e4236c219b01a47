package docs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A mention is a pattern whose first group is the name of something that has to exist.
var (
	flags       = regexp.MustCompile(`(?m)(?:^|[^\w-])(--[a-z][a-z0-9-]*)`)
	metrics     = regexp.MustCompile(`\b(edgehub_[a-z0-9_]+)`)
	alerts      = regexp.MustCompile(`\b(Edgehub[A-Z]\w+)`)
	annotations = regexp.MustCompile(`(?:^|[^\w./@-])((?:[a-z0-9-]+\.)*(?:openyurt|edgehub)\.io/\w[\w./-]*\w)`)
	tests       = regexp.MustCompile(`\b(Test[A-Z]\w+)`)
	makeTargets = regexp.MustCompile("(?m)(?:`|^ {4,}|^ *\\$ )(?:sudo )?make ([a-z][a-z0-9-]*)")
	folders     = regexp.MustCompile("`((?:cache|cmd|controller|deploy|docs|hub|imagepull|ota|proxy|test)/[\\w./-]+)`")
)

func TestFlagsExist(t *testing.T) {
	known := names(read(t, "docs/flags.md"), regexp.MustCompile("(?m)^\\|(?: `-\\w`,)? `(--[a-z0-9-]+)` \\|"))
	check(t, flags, known)
}

func TestMetricsExist(t *testing.T) {
	reference := read(t, "docs/metrics.md")
	known := names(reference, regexp.MustCompile("(?m)^\\| `(\\w+)` \\| \\w+ \\|"))
	for _, histogram := range names(reference, regexp.MustCompile("(?m)^\\| `(\\w+)` \\| histogram \\|")) {
		known = append(known, histogram+"_bucket", histogram+"_sum", histogram+"_count")
	}
	check(t, metrics, known)
}

func TestAlertsExist(t *testing.T) {
	check(t, alerts, names(read(t, "docs/metrics.md"), regexp.MustCompile(`(?m)^### (Edgehub\w+)$`)))
}

func TestAnnotationsExist(t *testing.T) {
	var known []string
	quoted := regexp.MustCompile(`"((?:[a-z0-9-]+\.)*(?:openyurt|edgehub)\.io/[\w./-]+)"`)
	walk(t, func(path string) {
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "test/") {
			known = append(known, names(read(t, path), quoted)...)
		}
	})
	check(t, annotations, known)
}

func TestTestsExist(t *testing.T) {
	var known []string
	defined := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	walk(t, func(path string) {
		if strings.HasSuffix(path, "_test.go") {
			known = append(known, names(read(t, path), defined)...)
		}
	})
	check(t, tests, known)
}

func TestMakeTargetsExist(t *testing.T) {
	known := names(read(t, "Makefile"), regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`))
	for _, suite := range names(read(t, "test/suites/suites.go"), regexp.MustCompile(`(?m)^\t+name: "(\w+)"`)) {
		known = append(known, "test-"+suite) // by a pattern
	}
	check(t, makeTargets, known)
}

func TestFoldersExist(t *testing.T) {
	for _, p := range currentPages(t) {
		for _, name := range names(p.text, folders) {
			if !exists(name) && others[name] == "" {
				t.Errorf("%s: there is no %s", p.path, name)
			}
		}
	}
}

// check fails for each name that matches mention on a page and is not known.
func check(t *testing.T, mention *regexp.Regexp, known []string) {
	t.Helper()
	if len(known) < 5 {
		t.Fatalf("only %q are known: the pattern for them does not fit any more", known)
	}
	for _, p := range currentPages(t) {
		for _, unknown := range unknownNames(p.text, mention, known) {
			t.Errorf("%s: there is no %s; if it belongs to another program, add it to others_test.go", p.path, unknown)
		}
	}
}

func unknownNames(text string, mention *regexp.Regexp, known []string) []string {
	var unknown []string
	for _, name := range names(text, mention) {
		isKnown := slices.Contains(known, name) || others[name] != ""
		if strings.HasSuffix(name, "_") { // of edgehub_cache_*
			isKnown = slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(k, name) })
		}
		if !isKnown {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// names returns the first group of each match, each name once.
func names(text string, pattern *regexp.Regexp) []string {
	var all []string
	for _, found := range pattern.FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestUnknownNamesAreFound(t *testing.T) {
	tests := map[string]struct {
		mention *regexp.Regexp
		text    string
		want    []string
	}{
		"flags":        {flags, "`--known=1`, (--foo), |---|, a--b <!-- generated: x --> --foo", []string{"--foo"}},
		"metrics":      {metrics, "edgehub_known{x} edgehub_kn* edgehub_known_* edgehub_foo", []string{"edgehub_foo", "edgehub_kn", "edgehub_known_"}},
		"alerts":       {alerts, "EdgehubKnown EdgehubFoo", []string{"EdgehubFoo"}},
		"annotations":  {annotations, "apps.openyurt.io/known, `apps.openyurt.io/foo=1` https://openyurt.io/docs 127.0.0.1/openyurt.io/v1", []string{"apps.openyurt.io/foo"}},
		"tests":        {tests, "TestKnown (`TestFoo`) Tests Testing", []string{"TestFoo"}},
		"make targets": {makeTargets, "make it, `make known`, `make foo X=1`\n    make bar\n$ sudo make baz", []string{"bar", "baz", "foo"}},
		"a prefix":     {metrics, "edgehub_known_total_*", []string{"edgehub_known_total_"}},
	}
	known := []string{"--known", "edgehub_known", "EdgehubKnown", "apps.openyurt.io/known", "TestKnown", "known"}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := unknownNames(tt.text, tt.mention, known); fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
