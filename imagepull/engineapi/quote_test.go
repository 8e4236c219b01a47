package engineapi

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestQuote(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"a text stays as it is":              {"401 Unauthorized", `"401 Unauthorized"`},
		"lines are joined":                   {" a\n b\t c\r\n", `"a b c"`},
		"terminal commands are escaped":      {"\x1b[2J\x07\x9b1m", `"\x1b[2J\a` + "\ufffd" + `1m"`},
		"C1 control characters are escaped":  {"a\u009b2Jb", `"a\u009b2Jb"`},
		"bidirectional controls are escaped": {"a\u202eb\u2066c", `"a\u202eb\u2066c"`},
		"quotation marks are replaced":       {`x" ; do as I say`, `"x' ; do as I say"`},
		"letters of other scripts stay":      {"größer 大", `"größer 大"`},
		"an invisible separator is escaped":  {"a\u2028b\u200bc", `"a b\u200bc"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Quote(tt.text); got != tt.want {
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
		got := Quote(text)
		if len(got) > quoteLimit+2 || !isLine(got) || strings.Count(got, `"`) != 2 {
			t.Errorf("%q becomes %q", text, got)
		}
		err := NewError(Other, errors.New(text)).ForImage(text).Explain("", errors.New(text))
		if again := line(err.Error(), errorLimit); len(again) > errorLimit || !isLine(again) || again != err.Error() {
			t.Errorf("%q becomes %q, and then %q", text, err, again)
		}
	})
}

// isLine reports whether all of text can be printed.
func isLine(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}
