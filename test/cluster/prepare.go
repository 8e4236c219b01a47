package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// packages are what nodes need and a bare Debian does not have: the package,
// and how to check that it is there.
var packages = []struct {
	name  string
	found func() bool
}{
	{"containerd", func() bool { return inPath("containerd") && inPath("containerd-shim-runc-v2") }},
	{"runc", func() bool { return inPath("runc") }},
	{"containernetworking-plugins", func() bool { _, err := findNetworkPlugins(); return err == nil }},
	{"iproute2", func() bool { return inPath("ip") }},
}

// MissingPackages are the Debian packages that have to be installed before
// nodes can be started; none, when everything is there.
func MissingPackages() []string {
	var missing []string
	for _, p := range packages {
		if !p.found() {
			missing = append(missing, p.name)
		}
	}
	return missing
}

// Prepare installs what is missing on this machine for nodes, with apt-get, and
// says so. It needs root when something is missing.
func Prepare(ctx context.Context, log io.Writer) error {
	missing := MissingPackages()
	if len(missing) == 0 {
		return nil
	}
	if os.Geteuid() != 0 || !inPath("apt-get") {
		return errMissing(missing)
	}
	fmt.Fprintf(log, "installing with apt-get: %s\n", strings.Join(missing, " "))
	install := append([]string{"install", "--yes", "--no-install-recommends"}, missing...)
	err := apt(ctx, install...)
	if err != nil { // the package lists may be missing or old
		err = errors.Join(apt(ctx, "update"), apt(ctx, install...))
	}
	if err != nil {
		return fmt.Errorf("install %s: %w", strings.Join(missing, " "), err)
	}
	if still := MissingPackages(); len(still) > 0 {
		return fmt.Errorf("apt-get has installed %s, and yet is missing: %s", strings.Join(missing, " "), strings.Join(still, " "))
	}
	return nil
}

func errMissing(missing []string) error {
	return fmt.Errorf("nodes need programs that are not installed here; as root: apt-get install --no-install-recommends %s",
		strings.Join(missing, " "))
}

func apt(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	if err != nil {
		lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
		return fmt.Errorf("apt-get %s: %w: %s", args[0], err, bytes.Join(lines[max(0, len(lines)-logTailLines):], []byte("\n")))
	}
	return nil
}

func inPath(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}
