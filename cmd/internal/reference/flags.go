package reference

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

// Flags returns a table of the flags in fs, in the order of the flag set.
func Flags(fs *pflag.FlagSet) string {
	t := newTable("flag", "default", "meaning")
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			t.row(flagName(f), flagDefault(f), f.Usage)
		}
	})
	return t.String()
}

// ProgramFlags is Flags for a program with commands. Flags that are not for all of them begin with those that they are for.
func ProgramFlags(p *cli.Program) string {
	p.Flags.VisitAll(func(f *pflag.Flag) {
		if takers := p.Takers(f.Name); len(takers) > 0 {
			f.Usage = strings.Join(takers, ", ") + ": " + f.Usage
		}
	})
	return Flags(p.Flags)
}

func flagName(f *pflag.Flag) string {
	if f.Shorthand == "" || f.Shorthand == f.Name {
		return code("--" + f.Name)
	}
	return code("-"+f.Shorthand) + ", " + code("--"+f.Name)
}

// flagDefault is empty where a flag has no value unless it is given.
func flagDefault(f *pflag.Flag) string {
	value := f.DefValue
	if _, isList := f.Value.(pflag.SliceValue); isList {
		value = strings.Trim(value, "[]")
	}
	if value == "" {
		return ""
	}
	return code(value)
}
