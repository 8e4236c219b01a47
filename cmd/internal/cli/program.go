// Package cli is what the programs of this module have in common: commands with help, completion and exit codes (program.go), flags
// of programs without commands (flags.go) and of logging, the version, and tables, texts and screens for terminals. Nothing outside
// of cmd imports it.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Program is a program with commands. All of them share one set of flags, which may stand before and behind the command.
type Program struct {
	Flags    *pflag.FlagSet
	Commands []Command
	// Values returns the values of a flag other than --output, for completion: all that may stand there. Flags has parsed the words
	// before it.
	Values func(ctx context.Context, flag, typed string) []string

	name, typed  string
	help         fs.FS
	usageCode    int
	wantsHelp    bool
	wantsVersion bool
}

// Command is one verb of a Program.
type Command struct {
	Name string
	// Outputs are the values of --output, beside none. nil: the command does not have that flag.
	Outputs []string
	// WritesFile is whether --output is the name of a file instead.
	WritesFile bool
	// Flags are those that are not for all commands.
	Flags []string
	// Args returns what may follow before, for completion; nil: nothing.
	Args func(ctx context.Context, before []string, typed string) []string
	Run  func(ctx context.Context, args []string) error
}

// NewProgram returns a program with the flags that add defines, --help and --version, to which the caller adds commands. People
// call it by typed. help has the text help/NAME.txt for the program and for each command. usageCode is the exit code for a wrong
// command line.
func NewProgram(name, typed string, help fs.FS, usageCode int, add func(*pflag.FlagSet)) *Program {
	p := &Program{name: name, typed: typed, help: help, usageCode: usageCode, Flags: pflag.NewFlagSet(name, pflag.ContinueOnError)}
	p.Flags.SortFlags = false
	p.Flags.Usage = func() {} // errors name the command that prints help
	add(p.Flags)
	p.Flags.BoolVarP(&p.wantsHelp, "help", "h", false, "print help, also for a command")
	p.Flags.BoolVar(&p.wantsVersion, "version", false, "print the version and exit")
	return p
}

// Completion is the command that prints a shell's script.
func (p *Program) Completion(out io.Writer) Command {
	return Command{
		Name: "completion",
		Args: func(_ context.Context, before []string, _ string) []string {
			if len(before) > 0 {
				return nil
			}
			return shells()
		},
		Run: func(_ context.Context, args []string) error {
			if len(args) != 1 {
				return WrongUse("want one shell: %s", strings.Join(shells(), ", "))
			}
			script, err := scriptFor(args[0], p.name)
			if err != nil {
				return err
			}
			_, err = io.WriteString(out, script)
			return err
		},
	}
}

// Run carries out the command line, and returns the exit code. Help goes to out, an error in one line to errs.
func (p *Program) Run(ctx context.Context, args []string, out, errs io.Writer) int {
	if len(args) > 0 && args[0] == Verb {
		for _, candidate := range p.Complete(ctx, args[1:]) {
			fmt.Fprintln(out, candidate)
		}
		return Done
	}
	var text strings.Builder
	code := Finish(&text, "error", p.dispatch(ctx, args, out))
	if text.Len() > 0 {
		fmt.Fprintln(errs, OneLine(strings.TrimSpace(text.String())))
	}
	return code
}

func (p *Program) dispatch(ctx context.Context, args []string, out io.Writer) error {
	if err := p.Flags.Parse(args); err != nil {
		return p.wrongUse("", err)
	}
	words := p.Flags.Args()
	switch {
	case p.wantsVersion:
		fmt.Fprintln(out, VersionLine(p.name))
		return nil
	case p.wantsHelp || len(words) == 0 || words[0] == "help":
		return p.printHelp(words, out)
	}
	c, err := p.find(words[0])
	if err != nil {
		return err
	}
	if err := p.check(c); err != nil {
		return p.wrongUse(c.Name, err)
	}
	err = c.Run(ctx, words[1:])
	if _, ok := errors.AsType[*usageError](err); ok {
		return p.wrongUse(c.Name, err)
	}
	return err
}

func (p *Program) wrongUse(command string, err error) error {
	return Errorf(p.usageCode, "%w; see %s --help", err, strings.TrimSpace(p.typed+" "+command))
}

func (p *Program) find(name string) (*Command, error) {
	i := slices.IndexFunc(p.Commands, func(c Command) bool { return c.Name == name })
	if i < 0 {
		return nil, p.wrongUse("", fmt.Errorf("unknown command %q: want %s", name, strings.Join(p.names(), ", ")))
	}
	return &p.Commands[i], nil
}

func (p *Program) names() []string {
	var names []string
	for _, c := range p.Commands {
		names = append(names, c.Name)
	}
	return names
}

// printHelp prints the help of the command that words name, or of the program.
func (p *Program) printHelp(words []string, out io.Writer) error {
	words = slices.DeleteFunc(words, func(s string) bool { return s == "help" })
	of := p.name
	if len(words) > 0 {
		c, err := p.find(words[0])
		if err != nil {
			return err
		}
		of = c.Name
	}
	text, err := fs.ReadFile(p.help, "help/"+of+".txt")
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

// check refuses flags that the command would ignore.
func (p *Program) check(c *Command) (err error) {
	p.Flags.Visit(func(f *pflag.Flag) {
		switch {
		case !p.takes(c, f.Name):
			err = fmt.Errorf("--%s is no flag of %s", f.Name, c.Name)
		case f.Name == "output" && !c.WritesFile && !slices.Contains(append(c.Outputs, ""), f.Value.String()):
			err = fmt.Errorf("--output=%q: want %s, or leave it out", f.Value, strings.Join(c.Outputs, " or "))
		}
	})
	return err
}

// takes reports whether a command has a flag: one of its own, or one that is no command's own.
func (p *Program) takes(c *Command, flag string) bool {
	takers := p.Takers(flag)
	return len(takers) == 0 || slices.Contains(takers, c.Name)
}

// Takers returns the names of the commands that a flag is for; none if it is for all.
func (p *Program) Takers(flag string) []string {
	var names []string
	for _, c := range p.Commands {
		if slices.Contains(c.Flags, flag) || flag == "output" && (c.Outputs != nil || c.WritesFile) {
			names = append(names, c.Name)
		}
	}
	return names
}

// PrintJSON prints v over many lines.
func PrintJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
