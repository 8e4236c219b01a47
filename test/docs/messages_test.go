package docs

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

// Users search the page for what they see, so what it quotes is what programs write.
func TestQuotedMessagesExist(t *testing.T) {
	const path = "docs/troubleshooting.md"
	messages := quotations(read(t, path))
	if len(messages) < 80 {
		t.Fatalf("only %d messages are quoted: the pattern for them does not fit any more", len(messages))
	}
	var literals []string
	walk(t, func(path string) {
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "test/") {
			literals = append(literals, literalsOf(t, read(t, path))...)
		}
	})
	for _, missing := range missingParts(messages, strings.Join(literals, "\n")) {
		t.Errorf("%s quotes %q, which no program writes", path, missing)
	}
}

var (
	quotation = regexp.MustCompile("(?m)^(?:> .*|#+ .*|\\| `.*)$")
	code      = regexp.MustCompile("`([^`]+)`")
	// varies is what a message gets when it is written: what the page leaves out, values,
	// and what an error is wrapped in.
	varies = regexp.MustCompile(`"…"|,? …,?|…|: |^OK, |^FAIL  |\b\d[\w.:/%-]*|\bPod[A-Z]\w+|\b\w+\.openyurt\.io/[\w-]+|\bFalse\b|\bKUBELET_\w+`)
	verb   = regexp.MustCompile(`%(?:\[\d+\])?[-+# 0]*[\d.]*(?:\[\d+\])?[a-zA-Z]`)
)

// quotations are what a page quotes: in headings, and lines that begin with >, all code; in tables,
// what a row begins with.
func quotations(text string) []string {
	var all []string
	for _, line := range quotation.FindAllString(text, -1) {
		for i, found := range code.FindAllStringSubmatch(line, -1) {
			if !strings.HasPrefix(line, "|") || i == 0 {
				all = append(all, found[1])
			}
		}
	}
	return slices.DeleteFunc(all, func(s string) bool { return len(strings.Fields(s)) < 3 || isCommand(s) })
}

func isCommand(s string) bool {
	first, _, _ := strings.Cut(s, " ")
	return slices.Contains([]string{"curl", "edgehubctl", "journalctl", "kubectl", "systemctl"}, first)
}

// missingParts returns the parts of messages, between what varies in them, that are in none
// of the literals.
func missingParts(messages []string, literals string) []string {
	const short = 12 // bytes: less may be a value
	var missing []string
	for _, message := range messages {
		for _, part := range varies.Split(message, -1) {
			if part = strings.TrimSpace(part); len(part) > short && !strings.Contains(literals, part) && others[part] == "" {
				missing = append(missing, part)
			}
		}
	}
	return missing
}

// literalsOf returns the strings in a Go file; those that + joins as one, without verbs.
func literalsOf(t *testing.T, source string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	ast.Inspect(file, func(n ast.Node) bool {
		expr, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		text, isText := textOf(expr)
		if isText {
			all = append(all, strings.ReplaceAll(verb.ReplaceAllString(text, "\x00"), "%%", "%"))
		}
		return !isText
	})
	return all
}

// textOf returns a string literal, or a sum with one in it.
func textOf(expr ast.Expr) (string, bool) {
	switch expr := expr.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(expr.Value)
		return text, expr.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		left, isLeft := textOf(expr.X)
		right, isRight := textOf(expr.Y)
		return left + right, expr.Op == token.ADD && (isLeft || isRight)
	}
	return "\x00", false
}

func TestMissingMessagesAreFound(t *testing.T) {
	literals := literalsOf(t, `package p; var a = f("the cloud %s, and %q is "+
		"not cached: %w", "connect: " + x + " has been refused by the peer")`)
	text := "> `edgehub: the cloud …, and \"…\" is not cached: …`\n| `connect: … has been refused by the peer` | `other words in a row` |\n" +
		"### `edgehub: the cloud …` or `a heading that nobody writes`\n" +
		"> `the cloud is … not cached` and `these words nobody writes`\n> `curl -s http://127.0.0.1/nowhere`\nprose `with words that nobody writes`\n"
	got := missingParts(quotations(text), strings.Join(literals, "\n"))
	if want := []string{"a heading that nobody writes", "these words nobody writes"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
