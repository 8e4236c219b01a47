package main

import (
	"strings"
	"testing"
)

func TestErrorsNameWhatIsWrong(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"a command that does not exist": {[]string{"foo"}, `unknown command "foo": want install, uninstall, rotate-ca, or flags of the hub; see edgehub --help`},
		"a flag that does not exist":    {[]string{"--foo"}, "unknown flag: --foo; see edgehub --help"},
		"an argument of install":        {[]string{"install", "foo"}, `unexpected argument "foo": flags of the hub come after --; see edgehub install --help`},
		"an argument of uninstall":      {[]string{"uninstall", "foo"}, `unexpected argument "foo": edgehub uninstall takes flags only; see edgehub uninstall --help`},
		"an argument of rotate-ca":      {[]string{"rotate-ca", "foo"}, `unexpected argument "foo": edgehub rotate-ca takes flags only`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), tt.args)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
