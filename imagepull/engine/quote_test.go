package engine

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestQuote(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"words":                         {"401 Unauthorized", `"401 Unauthorized"`},
		"lines":                         {" a\n b\t c\r\n", `"a b c"`},
		"commands for a terminal":       {"\x1b[2J\x07\x9b1m", `"\x1b[2J\a` + "\ufffd" + `1m"`},
		"the second set of controls":    {"a\u009b2Jb", `"a\u009b2Jb"`},
		"text that is shown backwards":  {"a\u202eb\u2066c", `"a\u202eb\u2066c"`},
		"what would end the quotation":  {`x" ; do as I say`, `"x' ; do as I say"`},
		"other scripts":                 {"größer 大", `"größer 大"`},
		"a separator that nobody draws": {"a\u2028b\u200bc", `"a b\u200bc"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := quote(tt.text); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func FuzzQuote(f *testing.F) {
	for _, seed := range []string{"a b", "\x1b[31m\n", strings.Repeat("ü", 1000), strings.Repeat("\x00", 1000), strings.Repeat("a\n", 1000), "\xff\xfe"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := quote(text)
		if len(got) > quoteLimit+2 || !isLine(got) || strings.Count(got, `"`) != 2 {
			t.Errorf("%q becomes %q", text, got)
		}
		err := NewError(Other, errors.New(text)).of(text).Explain("", errors.New(text))
		if again := line(err.Error(), errorLimit); len(again) > errorLimit || !isLine(again) || again != err.Error() {
			t.Errorf("%q becomes %q, and then %q", text, err, again)
		}
	})
}

// isLine reports whether all of text can be printed.
func isLine(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// Text about a Secret is only for those who may know of its namespace.
func TestFor(t *testing.T) {
	r := &registry{name: "registry.example.com/app:1", folders: []string{"/certs"}, tried: 2, credentials: []Credential{
		{Username: "a", Source: "secret shop/one", Namespace: "shop"},
		{Username: "b", Source: "secret bank/two", Namespace: "bank"},
		{Username: "c", Source: "file /config.json"},
	}}
	err := r.named(errorf(Unauthorized, "refused: %s", r.presented())).
		Explain("bank", errors.New("secret bank/three cannot be read")).of("app")
	tests := map[string]string{
		"shop":  "image app: refused: all 3 credentials for it were tried; check them; secret shop/one was tried; file /config.json was tried",
		"bank":  "image app: refused: all 3 credentials for it were tried; check them; secret bank/two was tried; file /config.json was tried; secret bank/three cannot be read",
		"other": "image app: refused: all 3 credentials for it were tried; check them; file /config.json was tried",
	}
	for namespace, want := range tests {
		if got := err.For(namespace); got != want {
			t.Errorf("%s is told %q, want %q", namespace, got, want)
		}
	}
	for _, name := range []string{"shop/one", "bank/two", "bank/three"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the node's log is not told of %s: %v", name, err)
		}
	}
}
