package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/pflag"
)

// NewFlags returns a set of flags for a command that has no others. Its --help prints a text, the file help/NAME.txt with dashes
// for blanks, and the flags, in the order of their definition.
func NewFlags(command string, help fs.FS) *pflag.FlagSet {
	flags := pflag.NewFlagSet(command, pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() {
		text, err := fs.ReadFile(help, "help/"+strings.ReplaceAll(command, " ", "-")+".txt")
		if err != nil {
			panic("read the help: " + err.Error()) // it is part of the program
		}
		fmt.Fprintf(flags.Output(), "%s\nFlags:\n%s", text, flags.FlagUsages())
	}
	return flags
}

// AddVersion adds --version.
func AddVersion(flags *pflag.FlagSet) { flags.Bool("version", false, "print the version and exit") }

// Parse parses args. Its errors name the command that prints help. If help or the version was asked for, it prints that and returns
// pflag.ErrHelp.
func Parse(flags *pflag.FlagSet, args []string) error {
	err := flags.Parse(args)
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		return fmt.Errorf("%w; see %s --help", err, flags.Name())
	}
	if version, _ := flags.GetBool("version"); version && err == nil { // false if there is no such flag
		fmt.Println(VersionLine(flags.Name()))
		return pflag.ErrHelp
	}
	return err
}

// ParseAlone is Parse for a command that takes flags only.
func ParseAlone(flags *pflag.FlagSet, args []string) error {
	if err := Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: %s takes flags only; see %s --help", flags.Arg(0), flags.Name(), flags.Name())
	}
	return nil
}
