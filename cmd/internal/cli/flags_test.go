package cli

import (
	"bytes"
	"errors"
	"testing"
	"testing/fstest"

	"github.com/spf13/pflag"
)

func TestFlagsOfAProgramWithoutCommands(t *testing.T) {
	texts := fstest.MapFS{"help/pets-feed.txt": {Data: []byte("pets feed feeds.\n")}}
	tests := map[string]struct {
		args []string
		err  string // "": none
		help string
	}{
		"flags":             {[]string{"--food=fish"}, "", ""},
		"help":              {[]string{"--help"}, "pflag: help requested", "pets feed feeds.\n\nFlags:\n      --food string   what they eat (default \"hay\")\n"},
		"a flag too many":   {[]string{"--bowl"}, "unknown flag: --bowl; see pets feed --help", ""},
		"a word too many":   {[]string{"cat"}, `unexpected argument "cat": pets feed takes flags only; see pets feed --help`, ""},
		"a value of no use": {[]string{"--food"}, "flag needs an argument: --food; see pets feed --help", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			fs := NewFlags("pets feed", texts)
			fs.SetOutput(&out)
			fs.String("food", "hay", "what they eat")
			got := ""
			if err := ParseAlone(fs, tt.args); err != nil {
				got = err.Error()
			}
			if got != tt.err || out.String() != tt.help {
				t.Errorf("got %q and %q, want %q and %q", got, out.String(), tt.err, tt.help)
			}
		})
	}
}

func TestHelpAndTheVersionAreNoFailure(t *testing.T) {
	fs := NewFlags("pets", nil)
	AddVersion(fs)
	if err := Parse(fs, []string{"--version"}); !errors.Is(err, pflag.ErrHelp) || CodeOf(err) != Done {
		t.Errorf("got %v", err)
	}
}
