package cli_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

// programVariable makes the test binary the program that shells complete.
const programVariable = "COMPLETION_TEST_PROGRAM"

// The test is also that program: pets feed [--food=KIND] NAME.
func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		cli.Print(os.Stdout, pets().Complete(context.Background(), os.Args[2:]))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func pets() *cli.Program {
	fs := pflag.NewFlagSet("pets", pflag.ContinueOnError)
	food := fs.StringP("food", "f", "", "")
	fs.String("bowl", "", "")
	fs.Bool("warm", false, "")
	return &cli.Program{
		Flags: fs,
		Values: func(_ context.Context, flag, typed string) []string {
			if flag == "food" {
				return []string{"fish", "fruit:apple", "fruit:pear"}
			}
			return cli.Files(typed)
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
	tests := map[string]struct{ words, want string }{
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
		"a folder":                             {"--bowl ../refer", "../reference/"},
		"a file like no other":                 {"--bowl *", ""},
		"a flag without a value takes none":    {"feed --warm c", "cat"},
		"a flag that does not exist":           {"feed --all c", "cat"},
		"a flag that does not exist, behind =": {"feed --all=c", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(pets().Complete(t.Context(), strings.Split(tt.words, " ")), " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if got := strings.Join(pets().Complete(t.Context(), nil), " "); got != "feed free" {
		t.Errorf("no words at all: got %q", got)
	}
}

// The scripts of all programs are these but for the program's name.
func TestShells(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "my-pets"), []byte("#!/bin/sh\n"+programVariable+"=1 exec '"+self+"' \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
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
			script, err := cli.Script(tt.shell, "my-pets")
			if err != nil {
				t.Fatal(err)
			}
			setup, typed, ok := strings.Cut(tt.typed, "; ")
			if !ok {
				setup, typed = ":", tt.typed
			}
			cmd := exec.CommandContext(t.Context(), shellOrSkip(t, tt.shell), "-c", setup+"; "+run[tt.shell])
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "SCRIPT="+script, "TYPED="+typed)
			out, err := cmd.CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
			if _, err := os.Stat(filepath.Join(dir, "executed")); err == nil {
				t.Error("what was typed was executed")
			}
		})
	}
	if _, err := cli.Script("tcsh", "my-pets"); err == nil || !strings.Contains(err.Error(), "want bash, zsh, fish") {
		t.Errorf("another shell: got %v", err)
	}
}

// shellOrSkip returns the shell's path. Without the shell it skips the test, and fails it where CI is set.
func shellOrSkip(t *testing.T, shell string) string {
	t.Helper()
	path, err := exec.LookPath(shell)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is not installed: as root on Debian, make test-unit installs it", shell)
		}
		t.Skipf("NOT RUN: completion in %s, which is not installed (Debian's package %s)", shell, shell)
	}
	return path
}

func TestKubectlGetsADirective(t *testing.T) {
	for want, candidates := range map[string][]string{":4\n": nil, "a/\nb/\n:4\n": {"a/", "b/"}, "a/\n:6\n": {"a/"}} {
		var out bytes.Buffer
		if cli.PrintForKubectl(&out, candidates); out.String() != want {
			t.Errorf("%q: got %q, want %q", candidates, out.String(), want)
		}
	}
}
