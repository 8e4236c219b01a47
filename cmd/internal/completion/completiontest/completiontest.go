// Package completiontest runs shells in which a test binary stands for the program that they
// complete.
package completiontest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// variable is the environment variable that makes a test binary the program in its value.
const variable = "COMPLETION_TEST_PROGRAM"

// Program returns the name of the program that this process has to be, or "" if it is a test.
// TestMain asks first.
func Program() string { return os.Getenv(variable) }

// Case is a command line and what completes it.
type Case = struct {
	Words string // separated by spaces; the one behind the last space is being typed
	Want  string // candidates, separated by spaces
}

// Check fails the test unless complete returns what each of the cases wants, in any white space.
func Check(t *testing.T, cases map[string]Case, complete func(t *testing.T, words []string) string) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(strings.Fields(complete(t, strings.Split(c.Words, " "))), " "); got != c.Want {
				t.Errorf("got %q, want %q", got, c.Want)
			}
		})
	}
}

// Shells runs shells with a program in their PATH, which is the test binary.
type Shells struct {
	Dir string // the working directory and HOME of the shells; the program is there
}

// New returns shells that have a program of that name. The folder is removed with the test.
func New(t *testing.T, program string) Shells {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := Shells{t.TempDir()}
	script := "#!/bin/sh\n" + variable + "=" + program + " exec '" + self + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(s.Dir, program), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return s
}

// Expect fails the test unless the script ends without an error and prints want on stdout and
// stderr, besides white space at both ends. env adds to the environment: "NAME=value".
//
// Without the shell the test is skipped, and it fails where the environment variable CI is set.
func (s Shells) Expect(t *testing.T, shell, script, want string, env ...string) {
	t.Helper()
	path, err := exec.LookPath(shell)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is not installed: as root on Debian, make test-unit installs it", shell)
		}
		t.Skipf("NOT RUN: completion in %s, which is not installed (Debian's package %s)", shell, shell)
	}
	cmd := exec.CommandContext(t.Context(), path, "-c", script)
	cmd.Dir = s.Dir
	cmd.Env = append(os.Environ(), "PATH="+s.Dir+":"+os.Getenv("PATH"), "HOME="+s.Dir)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != want {
		t.Errorf("%s: got %q, %v; want %q", shell, got, err, want)
	}
}
