// Package systemctl runs systemctl and journalctl.
package systemctl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// Run runs systemctl and returns its output. Its error contains the arguments and the output.
func Run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "systemctl", args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// Properties returns properties of a unit by name. They are empty if the unit does not exist.
func Properties(ctx context.Context, unit string, names ...string) (map[string]string, error) {
	out, err := Run(ctx, "show", unit, "--property="+strings.Join(names, ","))
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

// MainPID returns the main process of a service, or 0 if it is not running.
func MainPID(ctx context.Context, unit string) (int, error) {
	values, err := Properties(ctx, unit, "MainPID")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(values["MainPID"])
}

// Version returns systemd's version, such as 252, or 0 if it is unknown.
func Version(ctx context.Context) int {
	var version int
	out, _ := Run(ctx, "--version") // "systemd 252 (252.39-1~deb12u1)" and more lines
	_, _ = fmt.Sscanf(out, "systemd %d", &version)
	return version
}

// Check returns an error unless this machine runs systemd.
func Check() error {
	if _, err := exec.LookPath("systemctl"); err != nil {
		return errors.New("this machine has no systemctl: see docs/install.md for what to do by hand")
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return errors.New("systemd is not what has started this machine: see docs/install.md for what to do by hand")
	}
	return nil
}

const logLines = 15

// Journal returns the last log lines of a unit, for an error message.
func Journal(ctx context.Context, unit string) string {
	out, err := exec.CommandContext(ctx, "journalctl", "--unit="+unit, "--lines="+strconv.Itoa(logLines), "--no-pager", "--output=short-iso").CombinedOutput()
	if err != nil || len(strings.TrimSpace(string(out))) == 0 {
		return "\n(the journal has nothing of " + unit + ")"
	}
	return fmt.Sprintf("\nthe end of the journal of %s:\n%s", unit, strings.TrimRight(string(out), "\n"))
}
