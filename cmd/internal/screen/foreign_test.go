package screen

import (
	"bytes"
	"testing"
)

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
