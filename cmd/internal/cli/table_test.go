package cli

import (
	"fmt"
	"slices"
	"testing"
)

func TestColumnsAreAsWideAsTheirCells(t *testing.T) {
	got := Table([]string{"A", "B", "C"}, [][]string{{"1", "", "3"}, {"longer", "2", ""}}, 0)
	want := "A        B   C\n1        -   3\nlonger   2   -\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestACellIsOneLine(t *testing.T) {
	if got, want := Table([]string{"A", "B"}, [][]string{{"1\n2", "3\t 4"}}, 0), "A     B\n1 2   3 4\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestNoRowsAreAHeader(t *testing.T) {
	if got := Table([]string{"A", "B"}, nil, 0); got != "A   B\n" {
		t.Errorf("got %q", got)
	}
}

func TestATableFits(t *testing.T) {
	header := []string{"POD", "STATE", "MESSAGE"}
	rows := [][]string{{"shop/web", "done", ""}, {"shop/a-pod-with-a-long-name", "reverted", "it was not Ready within two minutes"}}
	tests := map[int]string{
		0: `POD                           STATE      MESSAGE
shop/web                      done       -
shop/a-pod-with-a-long-name   reverted   it was not Ready within two minutes
`,
		66: `POD                           STATE      MESSAGE
shop/web                      done       -
shop/a-pod-with-a-long-name   reverted   it was not Ready within
                                         two minutes
`,
		50: `POD        STATE      MESSAGE
shop/web   done       -
shop/a-pod-with-a-long-name
           reverted   it was not Ready within two
                      minutes
`,
		27: `POD   STATE      MESSAGE
shop/web
      done       -
shop/a-pod-with-a-long-name
      reverted   it was not
                 Ready
                 within two
                 minutes
`,
	}
	for width, want := range tests {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			if got := Table(header, rows, width); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// What stands between the first and the last column wraps where the last one has no room otherwise.
func TestColumnsBetweenShrink(t *testing.T) {
	header := []string{"POD", "REVISION", "MESSAGE"}
	rows := [][]string{{"shop/web", "a-workload-with-a-long-name-7598db76d4", "waits for the cloud"}, {"shop/db", "5d8f", "短信 一二三四五六七八九"}}
	want := `POD   REVISION       MESSAGE
shop/web
      a-workload-w   waits for the cloud
      ith-a-long-n
      ame-7598db76
      d4
shop/db
      5d8f           短信 一二三四五六七八九
`
	if got := Table(header, rows, 44); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTextWraps(t *testing.T) {
	tests := map[string][]string{
		"":                      {""},
		"one two":               {"one two"},
		"one two three":         {"one two", "three"},
		"größer als große":      {"größer", "als", "große"},
		"a 0123456789abc":       {"a", "01234567", "89abc"},
		"卡车在路上":                 {"卡车在路", "上"},
		"a 卡车在路上":               {"a", "卡车在路", "上"},
		"e\u0301e\u0301 123456": {"e\u0301e\u0301", "123456"},
	}
	for text, want := range tests {
		if got := wrapped(text, 8); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestLinesHangBelowTheirText(t *testing.T) {
	const text = "reached for three hours, and never away"
	if got, want := Hanging("cloud", text, 8, 34), "cloud   reached for three hours,\n        and never away\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, want := Hanging("cloud", text, 8, 0), "cloud   "+text+"\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A terminal gives most characters of East Asia, and emoji, two columns.
func TestWideCharacters(t *testing.T) {
	for text, want := range map[string]int{"": 0, "größe": 5, "卡车": 4, "ト": 2, "ﾄ": 1, "한글": 4, "，": 2, "🚚": 2, "e\u0301": 1, "a\n卡车\n": 4} {
		if got := Columns(text); got != want {
			t.Errorf("%q: got %d columns, want %d", text, got, want)
		}
	}
	for width, want := range map[int]string{0: "", 1: "", 2: "卡", 3: "卡", 4: "卡车", 9: "卡车"} {
		if got := start("卡车", width); got != want {
			t.Errorf("%d columns: got %q, want %q", width, got, want)
		}
	}
}
