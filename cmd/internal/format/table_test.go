package format

import "testing"

func TestColumnsAreAsWideAsTheirCells(t *testing.T) {
	got := Table([]string{"A", "B", "C"}, [][]string{{"1", "", "3"}, {"longer", "2", ""}})
	want := "A        B   C\n1        -   3\nlonger   2   -\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestNoRowsAreAHeader(t *testing.T) {
	if got := Table([]string{"A", "B"}, nil); got != "A   B\n" {
		t.Errorf("got %q", got)
	}
}
