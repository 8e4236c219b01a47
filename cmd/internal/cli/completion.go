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
const Verb = "__complete"

// timeout is how long a person waits for names that have to be fetched.
const timeout = 2 * time.Second

// Program is what can be typed in bash, zsh and fish, and in kubectl for its plugins. Its functions return all that may stand at a place; what does
// not begin like the typed word is left out later. They run after Flags has parsed the words
// before the one that is being typed.
type Program struct {
	Flags *pflag.FlagSet
	// Values returns the values of a flag; nil: anything may be typed.
	Values func(ctx context.Context, flag, typed string) []string
	// FlagsBehind returns the names of the flags that may stand behind arguments.
	FlagsBehind func(arguments []string) []string
	// Next returns what may follow arguments, besides flags.
	Next func(ctx context.Context, arguments []string, typed string) []string
}

// Complete returns what may stand for the last of words, which may be empty. It returns no
// errors: the person is in the middle of a line.
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

func (p *Program) candidates(ctx context.Context, before []string, typed string) []string {
	if len(before) > 0 {
		last := len(before) - 1
		if flag := p.flag(before[last]); flag != nil && flag.NoOptDefVal == "" {
			p.parse(before[:last])
			return p.Values(ctx, flag.Name, typed)
		}
	}
	p.parse(before)
	arguments := p.Flags.Args()
	if name, value, ok := strings.Cut(typed, "="); ok {
		if flag := p.flag(name); flag != nil {
			return prefixed(name+"=", p.Values(ctx, flag.Name, value))
		}
	}
	if strings.HasPrefix(typed, "-") {
		return slices.Sorted(slices.Values(prefixed("--", p.FlagsBehind(arguments))))
	}
	return p.Next(ctx, arguments, typed)
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

// Print writes candidates for a shell's script.
func Print(w io.Writer, candidates []string) {
	for _, candidate := range candidates {
		fmt.Fprintln(w, candidate)
	}
}

// PrintForKubectl writes candidates as kubectl reads them from kubectl_complete-PLUGIN: the
// last line is a set of bits for cobra.
func PrintForKubectl(w io.Writer, candidates []string) {
	const noSpace, noFiles = 2, 4 // cobra.ShellCompDirective…
	Print(w, candidates)
	directive := noFiles
	if len(candidates) == 1 && strings.HasSuffix(candidates[0], "/") {
		directive |= noSpace
	}
	fmt.Fprintf(w, ":%d\n", directive)
}
