package format

import (
	"fmt"
	"slices"
	"testing"
)

func TestColumnsAreAsWideAsTheirCells(t *testing.T) {
	got := Table([]string{"A", "B", "C"}, [][]string{{"1", "", "3"}, {"longer", "2", ""}})
	want := "A        B   C\n1        -   3\nlonger   2   -\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestACellIsOneLine(t *testing.T) {
	if got, want := Table([]string{"A", "B"}, [][]string{{"1\n2", "3\t 4"}}), "A     B\n1 2   3 4\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestNoRowsAreAHeader(t *testing.T) {
	if got := Table([]string{"A", "B"}, nil); got != "A   B\n" {
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
			if got := Fitted(header, rows, width); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestTextWraps(t *testing.T) {
	tests := map[string][]string{
		"":                 {""},
		"one two":          {"one two"},
		"one two three":    {"one two", "three"},
		"größer als große": {"größer", "als", "große"},
		"a 0123456789abc":  {"a", "01234567", "89abc"},
	}
	for text, want := range tests {
		if got := wrapped(text, 8); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
