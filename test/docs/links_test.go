package docs

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

func TestLinksLeadSomewhere(t *testing.T) {
	text := func(path string) string { return read(t, path) }
	for _, p := range pages(t) {
		for _, broken := range brokenLinks(p, exists, text) {
			t.Error(broken)
		}
	}
}

func TestBrokenLinksAreFound(t *testing.T) {
	files := map[string]string{"docs/b.md": "# One `two` [three](c.md)\n## Same\n## Same\n", "LICENSE": ""}
	exists := func(path string) bool { _, ok := files[path]; return ok || path == "docs" }
	text := func(path string) string { return files[path] }
	tests := map[string]struct{ text, want string }{
		"pages, anchors and folders that exist": {
			text: "# Here\n[b](b.md) [b](b.md#one-two-three) [b](b.md#same-1) [h](#here) [l](../LICENSE) [d](../docs) [u](https://example.com/#x)",
		},
		"a page that does not exist":        {text: "[c](c.md)", want: `docs/a.md: link to c.md: there is no docs/c.md`},
		"an anchor that does not exist":     {text: "[b](b.md#two)", want: `docs/a.md: link to b.md#two: docs/b.md has no such heading`},
		"an anchor on the page itself":      {text: "# Here\n[there](#there)", want: `docs/a.md: link to #there: docs/a.md has no such heading`},
		"an image in HTML":                  {text: `<source srcset="dark.svg"><img src="../LICENSE">`, want: `docs/a.md: link to dark.svg: there is no docs/dark.svg`},
		"a definition":                      {text: "[c]: c.md\n", want: `docs/a.md: link to c.md: there is no docs/c.md`},
		"a heading in code is no heading":   {text: "```\n# here\n```\n[h](#here)", want: `docs/a.md: link to #here: docs/a.md has no such heading`},
		"a link in code is no link":         {text: "`[c](c.md)`\n```\n[c](c.md)\n```\n"},
		"an anchor that stands in the text": {text: "<a id=\"x\"></a> [x](#x)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			files["docs/a.md"] = tt.text
			if got := strings.Join(brokenLinks(page{"docs/a.md", tt.text}, exists, text), "\n"); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

var (
	links   = regexp.MustCompile(`\]\(([^()\s]+)(?:\s+"[^"]*")?\)|(?m:^\[[^\]]+\]:\s+(\S+))|\b(?:href|src|srcset)="([^"\s]+)"`)
	scheme  = regexp.MustCompile(`^[a-z]+:`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *#*$`)
	anchor  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	link    = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
)

func brokenLinks(p page, exists func(path string) bool, text func(path string) string) []string {
	var broken []string
	for _, found := range links.FindAllStringSubmatch(prose(p.text), -1) {
		target := found[1] + found[2] + found[3]
		if scheme.MatchString(target) {
			continue
		}
		file, fragment, _ := strings.Cut(target, "#")
		to := p.path
		if file != "" {
			to = path.Join(path.Dir(p.path), file)
		}
		switch {
		case !exists(to):
			broken = append(broken, fmt.Sprintf("%s: link to %s: there is no %s", p.path, target, to))
		case fragment != "" && strings.HasSuffix(to, ".md") && !slices.Contains(anchors(text(to)), fragment):
			broken = append(broken, fmt.Sprintf("%s: link to %s: %s has no such heading", p.path, target, to))
		}
	}
	return broken
}

// anchors are those that GitHub gives to the headings of a page, and those in its text.
func anchors(text string) []string {
	var all []string
	text = withoutBlocks(text)
	for _, found := range anchor.FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	count := map[string]int{}
	for _, found := range heading.FindAllStringSubmatch(text, -1) {
		name := slug(found[1])
		if n := count[name]; n > 0 {
			all = append(all, fmt.Sprintf("%s-%d", name, n))
		} else {
			all = append(all, name)
		}
		count[name]++
	}
	return all
}

func slug(heading string) string {
	heading = link.ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}
