package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

const (
	hubService     = "edgehub.service"
	hubSocket      = "edgehub.socket"
	kubeletService = "kubelet.service"
)

// systemctl runs one command, and says which if it fails.
func systemctl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "systemctl", args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// properties of a unit, by name; empty ones for one that does not exist.
func properties(ctx context.Context, unit string, names ...string) (map[string]string, error) {
	out, err := systemctl(ctx, "show", unit, "--property="+strings.Join(names, ","))
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for line := range strings.Lines(out) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values[name] = value
		}
	}
	return values, nil
}

// mainPID is the process of a service; 0 while it does not run.
func mainPID(ctx context.Context, unit string) (int, error) {
	values, err := properties(ctx, unit, "MainPID")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(values["MainPID"])
}

// systemdVersion is its number, such as 252; 0 where it does not say.
func systemdVersion(ctx context.Context) int {
	out, err := systemctl(ctx, "--version")
	if err != nil {
		return 0
	}
	words := strings.Fields(out)
	if len(words) < 2 {
		return 0
	}
	number, err := strconv.Atoi(words[1])
	if err != nil {
		return 0
	}
	return number
}

// underSystemd is an error that says why not.
func underSystemd() error {
	if _, err := exec.LookPath("systemctl"); err != nil {
		return errors.New("this machine has no systemctl: see docs/install.md for what to do by hand")
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return errors.New("systemd is not what has started this machine: see docs/install.md for what to do by hand")
	}
	return nil
}

const logLines = 15

// logOf is the end of what a unit has said, for an error.
func logOf(ctx context.Context, unit string) string {
	out, err := exec.CommandContext(ctx, "journalctl", "--unit="+unit, "--lines="+strconv.Itoa(logLines), "--no-pager", "--output=short-iso").CombinedOutput()
	if err != nil || len(strings.TrimSpace(string(out))) == 0 {
		return "\n(the journal has nothing of " + unit + ")"
	}
	return fmt.Sprintf("\nthe end of the journal of %s:\n%s", unit, strings.TrimRight(string(out), "\n"))
}
