package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Verb is the argument with which a shell's script calls the program, followed by the words up to the cursor. The shell offers
// what the program prints, one a line. The scripts hold no names of commands and flags, so they need no update with the program,
// and never evaluate what is typed.
//
// Cobra's completion would be 106 lines less and 0.23 MB more in each program. Its script for bash runs what stands in $() on the
// line when TAB is pressed, and needs the package bash-completion; and behind a flag with a value, cobra finds no command.
const Verb = "__complete"

// timeout is how long a person waits for names that have to be fetched.
const timeout = 2 * time.Second

// Complete returns what may stand for the last of words, which may be empty. It returns no errors: the person is in the middle of
// a line.
func (p *Program) Complete(ctx context.Context, words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	typed := words[len(words)-1]
	return slices.DeleteFunc(p.candidates(ctx, words[:len(words)-1], typed), func(candidate string) bool {
		return !strings.HasPrefix(candidate, typed)
	})
}

// candidates returns all that may stand behind before, whether or not it begins as what is typed.
func (p *Program) candidates(ctx context.Context, before []string, typed string) []string {
	if last := len(before) - 1; last >= 0 {
		if flag := p.flag(before[last]); flag != nil && flag.NoOptDefVal == "" {
			p.parse(before[:last])
			return p.values(ctx, flag.Name, typed)
		}
	}
	p.parse(before)
	if name, value, ok := strings.Cut(typed, "="); ok {
		if flag := p.flag(name); flag != nil {
			return prefixed(name+"=", p.values(ctx, flag.Name, value))
		}
	}
	words := p.Flags.Args()
	var c *Command // nil if it is not known
	if len(words) > 0 {
		c, _ = p.find(words[0])
	}
	switch {
	case strings.HasPrefix(typed, "-"):
		return p.flagsOf(c)
	case len(words) == 0:
		return append(p.names(), "help")
	case words[0] == "help" && len(words) == 1:
		return p.names()
	case c == nil || c.Args == nil:
		return nil
	}
	return c.Args(ctx, words[1:], typed)
}

// flagsOf returns the flags of a command, all if it is not known.
func (p *Program) flagsOf(c *Command) []string {
	var names []string
	p.Flags.VisitAll(func(f *pflag.Flag) {
		if c == nil || p.takes(c, f.Name) {
			names = append(names, "--"+f.Name)
		}
	})
	return slices.Sorted(slices.Values(names))
}

// values returns the values of a flag.
func (p *Program) values(ctx context.Context, flag, typed string) []string {
	if flag != "output" {
		return p.Values(ctx, flag, typed)
	}
	var all []string
	words := p.Flags.Args()
	for _, c := range p.Commands {
		if len(words) == 0 || words[0] == c.Name {
			all = append(all, c.Outputs...)
			if c.WritesFile && len(words) > 0 {
				all = append(all, Files(typed)...)
			}
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(all)))
}

// parse parses as far as it goes.
func (p *Program) parse(words []string) {
	p.Flags.ParseErrorsAllowlist.UnknownFlags = true
	_ = p.Flags.Parse(words)
}

// flag returns the flag that word names, as --long or -s, or nil.
func (p *Program) flag(word string) *pflag.Flag {
	if long, ok := strings.CutPrefix(word, "--"); ok {
		return p.Flags.Lookup(long)
	}
	if short, ok := strings.CutPrefix(word, "-"); ok && len(short) == 1 {
		return p.Flags.ShorthandLookup(short)
	}
	return nil
}

func prefixed(prefix string, words []string) []string {
	var out []string
	for _, word := range words {
		out = append(out, prefix+word)
	}
	return out
}

// Files returns the files and folders that typed may become; folders end in a slash.
func Files(typed string) []string {
	literal := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)
	names, err := filepath.Glob(literal.Replace(typed) + "*")
	if err != nil {
		return nil
	}
	for i, file := range names {
		if info, err := os.Stat(file); err == nil && info.IsDir() {
			names[i] += "/"
		}
	}
	return names
}

// PrintForKubectl writes candidates as kubectl reads them from kubectl_complete-PLUGIN: the
// last line is a set of bits for cobra.
func PrintForKubectl(w io.Writer, candidates []string) {
	const noSpace, noFiles = 2, 4 // cobra.ShellCompDirective…
	directive := noFiles
	if len(candidates) == 1 && strings.HasSuffix(candidates[0], "/") {
		directive |= noSpace
	}
	for _, candidate := range candidates {
		fmt.Fprintln(w, candidate)
	}
	fmt.Fprintf(w, ":%d\n", directive)
}
