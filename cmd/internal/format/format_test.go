package format

import "testing"

func TestEmptyPartsAreLeftOut(t *testing.T) {
	if got := Joined("", "one", "", "two", ""); got != "one, two" {
		t.Errorf("got %q, want one, two", got)
	}
	if got := Joined(""); got != "" {
		t.Errorf("got %q, want nothing", got)
	}
}
