package expectations

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWhatIsSaidIsQuotedAndShort(t *testing.T) {
	got := QuoteError(errors.New("no\x1b[31m\n" + strings.Repeat("ü", 1000)))
	if !utf8.ValidString(got) || len(got) > 2*maxQuoted || strings.ContainsAny(got, "\x1b\n") || !strings.HasPrefix(got, `"no\x1b[31m\n`) {
		t.Errorf("got %s", got)
	}
}
