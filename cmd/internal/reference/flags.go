package reference

import (
	"strings"

	"github.com/spf13/pflag"
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
