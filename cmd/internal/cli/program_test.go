package cli_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

// programVariable makes the test binary the program that shells complete.
const programVariable = "COMPLETION_TEST_PROGRAM"

// The test is also that program: my-pets feed [--food=KIND] NAME.
func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		os.Exit(pets(os.Stdout).Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

var help = fstest.MapFS{"help/my-pets.txt": {Data: []byte("my-pets COMMAND\n")}, "help/feed.txt": {Data: []byte("my-pets feed NAME\n")}}

func pets(out io.Writer) *cli.Program {
	var food, output string
	p := cli.NewProgram("my-pets", "my pets", help, cli.Usage, func(fs *pflag.FlagSet) {
		fs.StringVarP(&food, "food", "f", "", "")
		fs.String("bowl", "", "")
		fs.Bool("warm", false, "")
		fs.StringVarP(&output, "output", "o", "", "")
	})
	p.Values = func(_ context.Context, flag, typed string) []string {
		if flag == "food" {
			return []string{"fish", "fruit:apple", "fruit:pear"}
		}
		return cli.Files(typed)
	}
	p.Commands = []cli.Command{
		{
			Name: "feed", Flags: []string{"food", "bowl"}, Outputs: []string{"json", "wide"},
			Args: func(context.Context, []string, string) []string { return []string{"cat", "dog", "eats-" + food} },
			Run: func(_ context.Context, args []string) error {
				switch {
				case len(args) == 0:
					return cli.WrongUse("want a %s", "NAME")
				case args[0] == "dog":
					return cli.Errorf(cli.NotNow, "the dog\nsleeps")
				case args[0] == "fox":
					return cli.Exit(42)
				}
				_, err := io.WriteString(out, "fed "+args[0]+" "+food+output+"\n")
				return err
			},
		},
		{Name: "free", Outputs: []string{"json"}},
		p.Completion(out),
	}
	return p
}

func TestCommandLines(t *testing.T) {
	tests := map[string]struct {
		words     string
		code      int
		out, errs string
	}{
		"a command":                        {"feed cat --food=fish", cli.Done, "fed cat fish\n", ""},
		"flags before it":                  {"-o wide feed cat", cli.Done, "fed cat wide\n", ""},
		"nothing":                          {"", cli.Done, "my-pets COMMAND\n", ""},
		"help":                             {"help", cli.Done, "my-pets COMMAND\n", ""},
		"help of a command":                {"help feed", cli.Done, "my-pets feed NAME\n", ""},
		"--help behind a command":          {"feed dog -h", cli.Done, "my-pets feed NAME\n", ""},
		"the version":                      {"--version", cli.Done, cli.VersionLine("my-pets") + "\n", ""},
		"an error is one line":             {"feed dog", cli.NotNow, "", "error: the dog sleeps\n"},
		"a code without words":             {"feed fox", 42, "", ""},
		"an argument that is missing":      {"feed", cli.Usage, "", "error: want a NAME; see my pets feed --help\n"},
		"an unknown command":               {"fee", cli.Usage, "", "error: unknown command \"fee\": want feed, free, completion; see my pets --help\n"},
		"help of an unknown command":       {"help fee", cli.Usage, "", "error: unknown command \"fee\": want feed, free, completion; see my pets --help\n"},
		"an unknown flag":                  {"feed --cold", cli.Usage, "", "error: unknown flag: --cold; see my pets --help\n"},
		"a flag of another command":        {"free --food=fish", cli.Usage, "", "error: --food is no flag of free; see my pets free --help\n"},
		"an output that does not exist":    {"feed cat -o yaml", cli.Usage, "", "error: --output=\"yaml\": want json or wide, or leave it out; see my pets feed --help\n"},
		"an output of what has none":       {"completion bash -o json", cli.Usage, "", "error: --output is no flag of completion; see my pets completion --help\n"},
		"a script for no shell":            {"completion", cli.Usage, "", "error: want one shell: bash, zsh, fish; see my pets completion --help\n"},
		"a script for a shell without one": {"completion tcsh", cli.Usage, "", "error: \"tcsh\" is no shell: want bash, zsh, fish; see my pets completion --help\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := pets(&out).Run(t.Context(), strings.Fields(tt.words), &out, &errs)
			if code != tt.code || out.String() != tt.out || errs.String() != tt.errs {
				t.Errorf("got %d, %q and %q; want %d, %q and %q", code, out.String(), errs.String(), tt.code, tt.out, tt.errs)
			}
		})
	}
}

func TestCandidates(t *testing.T) {
	tests := map[string]struct{ words, want string }{
		"nothing yet":                          {"", "feed free completion help"},
		"the beginning of a word":              {"fr", "free"},
		"what comes next":                      {"feed ", "cat dog eats-"},
		"flags that were given count":          {"feed --food fish e", "eats-fish"},
		"flags that were given with =, too":    {"feed -f=fish e", "eats-fish"},
		"flags are sorted":                     {"-", "--bowl --food --help --output --version --warm"},
		"flags of a command":                   {"free -", "--help --output --version --warm"},
		"a value":                              {"feed --food f", "fish fruit:apple fruit:pear"},
		"a value of a short flag":              {"feed -f fi", "fish"},
		"a value behind =":                     {"feed --food=fi", "--food=fish"},
		"an empty value behind =":              {"feed --food=", "--food=fish --food=fruit:apple --food=fruit:pear"},
		"a value of a short flag behind =":     {"-f=fi", "-f=fish"},
		"help of a command":                    {"help f", "feed free"},
		"an output of any command":             {"-o ", "json wide"},
		"an output of a command":               {"free -o ", "json"},
		"what takes nothing":                   {"free ", ""},
		"behind an unknown command":            {"fee ", ""},
		"a shell":                              {"completion ", "bash zsh fish"},
		"a file behind =":                      {"--bowl=scri", "--bowl=scripts.go"},
		"a folder":                             {"--bowl ../refer", "../reference/"},
		"a file like no other":                 {"--bowl *", ""},
		"a flag without a value takes none":    {"feed --warm c", "cat"},
		"a flag that does not exist":           {"feed --all c", "cat"},
		"a flag that does not exist, behind =": {"feed --all=c", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(pets(io.Discard).Complete(t.Context(), strings.Split(tt.words, " ")), " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if got := strings.Join(pets(io.Discard).Complete(t.Context(), nil), " "); got != "feed free completion help" {
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
			var script bytes.Buffer
			if code := pets(&script).Run(t.Context(), []string{"completion", tt.shell}, &script, &script); code != cli.Done {
				t.Fatal(script.String())
			}
			setup, typed, ok := strings.Cut(tt.typed, "; ")
			if !ok {
				setup, typed = ":", tt.typed
			}
			cmd := exec.CommandContext(t.Context(), shellOrSkip(t, tt.shell), "-c", setup+"; "+run[tt.shell])
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "SCRIPT="+script.String(), "TYPED="+typed)
			out, err := cmd.CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
			if _, err := os.Stat(filepath.Join(dir, "executed")); err == nil {
				t.Error("what was typed was executed")
			}
		})
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
