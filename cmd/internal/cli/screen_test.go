package cli

import (
	"bytes"
	"strings"
	"testing"
)

func TestAScreenIsDrawnInPlace(t *testing.T) {
	var out bytes.Buffer
	s := NewScreen(&out, func() (int, int) { return 20, 5 })
	s.Draw("one\ntwo\n")
	if got, want := out.String(), "\x1b[Jone\ntwo\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	out.Reset()
	s.Draw("three\n")
	if got, want := out.String(), "\x1b[2A\r\x1b[Jthree\n"; got != want {
		t.Errorf("got %q, want the two lines drawn over, %q", got, want)
	}
}

func TestATextIsCutToTheScreen(t *testing.T) {
	var out bytes.Buffer
	s := NewScreen(&out, func() (int, int) { return 10, 4 })
	s.Draw("ünder ten\nthis is more than ten\n3\n4\n5\n")
	want := "\x1b[Jünder ten\nthis is...\n... and...\n"
	if got := out.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if s.lines != strings.Count(want, "\n") {
		t.Errorf("%d lines are counted, %d were drawn", s.lines, strings.Count(want, "\n"))
	}
	out.Reset()
	s.Draw("卡车在路上\n卡车在路上上\n")
	if want := "卡车在路上\n卡车在...\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("got %q, want %q, which has 10 columns", out.String(), want)
	}
}

func TestABufferIsNoTerminal(t *testing.T) {
	if _, ok := Terminal(&bytes.Buffer{}); ok {
		t.Error("a buffer is taken for a terminal")
	}
}
