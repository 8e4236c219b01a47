package completion_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/cmd/internal/completion"
	"github.com/edgehub-io/edgehub/cmd/internal/completion/completiontest"
)

// The test is also the program that shells complete: pets feed [--food=KIND] NAME.
func TestMain(m *testing.M) {
	if completiontest.Program() != "" {
		completion.Print(os.Stdout, pets().Complete(context.Background(), os.Args[2:]))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func pets() *completion.Program {
	fs := pflag.NewFlagSet("pets", pflag.ContinueOnError)
	food := fs.StringP("food", "f", "", "")
	fs.String("bowl", "", "")
	fs.Bool("warm", false, "")
	return &completion.Program{
		Flags: fs,
		Values: func(_ context.Context, flag, typed string) []string {
			if flag == "food" {
				return []string{"fish", "fruit:apple", "fruit:pear"}
			}
			return completion.Files(typed)
		},
		FlagsBehind: func(arguments []string) []string { return []string{"warm", "food", "bowl"}[len(arguments):] },
		Next: func(_ context.Context, arguments []string, _ string) []string {
			if len(arguments) == 0 {
				return []string{"feed", "free"}
			}
			return []string{"cat", "dog", "eats-" + *food}
		},
	}
}

func TestCandidates(t *testing.T) {
	tests := map[string]completiontest.Case{
		"nothing yet":                          {"", "feed free"},
		"the beginning of a word":              {"fr", "free"},
		"what comes next":                      {"feed ", "cat dog eats-"},
		"flags that were given count":          {"feed --food fish e", "eats-fish"},
		"flags that were given with =, too":    {"feed -f=fish e", "eats-fish"},
		"flags are sorted":                     {"-", "--bowl --food --warm"},
		"flags behind arguments":               {"feed -", "--bowl --food"},
		"a value":                              {"feed --food f", "fish fruit:apple fruit:pear"},
		"a value of a short flag":              {"feed -f fi", "fish"},
		"a value behind =":                     {"feed --food=fi", "--food=fish"},
		"an empty value behind =":              {"feed --food=", "--food=fish --food=fruit:apple --food=fruit:pear"},
		"a value of a short flag behind =":     {"-f=fi", "-f=fish"},
		"a file behind =":                      {"--bowl=scri", "--bowl=scripts.go"},
		"a folder":                             {"--bowl ../complet", "../completion/"},
		"a flag without a value takes none":    {"feed --warm c", "cat"},
		"a flag that does not exist":           {"feed --all c", "cat"},
		"a flag that does not exist, behind =": {"feed --all=c", ""},
	}
	completiontest.Check(t, tests, func(t *testing.T, words []string) string {
		return strings.Join(pets().Complete(t.Context(), words), " ")
	})
	if got := strings.Join(pets().Complete(t.Context(), nil), " "); got != "feed free" {
		t.Errorf("no words at all: got %q", got)
	}
}

func TestShells(t *testing.T) {
	shells := completiontest.New(t, "my-pets")
	// What the shell puts in the place of the word, or of what it takes for the word.
	tests := map[string]struct{ shell, typed, want string }{
		"bash: words":                         {"bash", "my-pets fe", "feed"},
		"bash: an empty word":                 {"bash", "my-pets feed ", "cat dog eats-"},
		"bash: behind =":                      {"bash", "my-pets feed --food=fi", "fish"},
		"bash: behind = and a colon":          {"bash", "my-pets feed --food=fruit:a", "apple"},
		"bash: behind a colon":                {"bash", "my-pets feed --food fruit:", "apple pear"},
		"bash: = does not end words":          {"bash", "COMP_WORDBREAKS=' '; my-pets --food=fi", "--food=fish"},
		"bash: what is typed is not executed": {"bash", "my-pets $(touch executed) `touch executed` fe", ""},
		"zsh: words":                          {"zsh", "my-pets fe", "feed"},
		"zsh: behind =":                       {"zsh", "my-pets --food=fi", "--food=fish"},
		"fish: words":                         {"fish", "my-pets fe", "feed"},
		"fish: behind =":                      {"fish", "my-pets feed --food=fi", "--food=fish"},
	}
	run := map[string]string{
		"bash": `eval "$SCRIPT"; COMP_LINE=$TYPED; COMP_POINT=${#COMP_LINE}; _my_pets && echo "${COMPREPLY[@]}"`,
		"zsh":  `compdef() { :; }; eval "$SCRIPT"; compadd() { shift; print -- "$@"; }; words=(${=TYPED}) CURRENT=${#words}; _my_pets`,
		"fish": `eval "$SCRIPT"; complete -C "$TYPED"`,
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			script, err := completion.Script(tt.shell, "my-pets")
			if err != nil {
				t.Fatal(err)
			}
			setup, typed, ok := strings.Cut(tt.typed, "; ")
			if !ok {
				setup, typed = ":", tt.typed
			}
			shells.Expect(t, tt.shell, setup+"; "+run[tt.shell], tt.want, "SCRIPT="+script, "TYPED="+typed)
			if _, err := os.Stat(filepath.Join(shells.Dir, "executed")); err == nil {
				t.Error("what was typed was executed")
			}
		})
	}
	if _, err := completion.Script("tcsh", "my-pets"); err == nil || !strings.Contains(err.Error(), "want bash, zsh, fish") {
		t.Errorf("another shell: got %v", err)
	}
}

func TestKubectlGetsADirective(t *testing.T) {
	for want, candidates := range map[string][]string{":4\n": nil, "a/\nb/\n:4\n": {"a/", "b/"}, "a/\n:6\n": {"a/"}} {
		var out bytes.Buffer
		if completion.PrintForKubectl(&out, candidates); out.String() != want {
			t.Errorf("%q: got %q, want %q", candidates, out.String(), want)
		}
	}
}
