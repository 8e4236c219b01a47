package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
)

func TestSafe(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"words, lines and tabs":   {"größer\t大\n", "größer\t大\n"},
		"commands for a terminal": {"\x1b[2J\x07\r", `\u001b[2J\u0007\u000d`},
		"the second set of them":  {"\u009b2J", `\u009b2J`},
		"the same as a byte":      {"\x9b2J", "\ufffd2J"},
		"text shown backwards":    {"a\u202eb", `a\u202eb`},
		"beyond sixteen bits":     {"\U000e0041", `\udb40\udc41`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if n, err := fmt.Fprint(Safe(&out), tt.text); err != nil || n != len(tt.text) {
				t.Errorf("wrote %d bytes, %v", n, err)
			}
			if out.String() != tt.want {
				t.Errorf("got %q, want %q", out.String(), tt.want)
			}
		})
	}
}

// What is escaped in JSON is the same to whoever reads it.
func TestSafeJSON(t *testing.T) {
	const text = "\u009b2J \u202e \U000e0041 \x7f ü"
	var out bytes.Buffer
	if err := json.NewEncoder(Safe(&out)).Encode(text); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got != text {
		t.Errorf("%q is read as %q, %v", out.String(), got, err)
	}
}

// A screen's own commands arrive, those of a text do not.
func TestAScreenIsSafe(t *testing.T) {
	var out bytes.Buffer
	s := NewScreen(Safe(&out), func() (int, int) { return 80, 24 })
	s.Draw("\x1b[31mred\n")
	s.Draw("done\n")
	const want = "\x1b[J" + `\u001b[31mred` + "\n" + "\x1b[1A\r\x1b[J" + "done\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestForeignIsRawInAPipe(t *testing.T) {
	var out bytes.Buffer
	const text = "\x1b[31mred\x9b\r\n"
	if _, err := Foreign(Safe(&out)).Write([]byte(text)); err != nil || out.String() != text {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

// The parts of a log come in blocks, which may end within a character.
func TestCharactersStayWhole(t *testing.T) {
	tests := map[string]struct {
		parts []string
		want  string
	}{
		"two parts of one character": {[]string{"gr\xc3", "\xb6\xc3\x9fe"}, "größe"},
		"byte by byte":               {[]string{"\xf0", "\x9f", "\x98", "\x80!"}, "😀!"},
		"a byte of no character":     {[]string{"a\x9b", "2J"}, "a\ufffd2J"},
		"a character that breaks":    {[]string{"\xe5", "a"}, "\ufffda"},
		"a command in two parts":     {[]string{"\x1b", "[2J"}, `\u001b[2J`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			w := &whole{w: Safe(&out)}
			for _, part := range tt.parts {
				if n, err := w.Write([]byte(part)); err != nil || n != len(part) {
					t.Fatalf("wrote %d bytes of %d, %v", n, len(part), err)
				}
			}
			if out.String() != tt.want {
				t.Errorf("got %q, want %q", out.String(), tt.want)
			}
		})
	}
}
