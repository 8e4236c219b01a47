package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"github.com/edgehub-io/edgehub/test/kubeadm"
)

// runOn runs a command on a machine as root, with this program's input and output.
func runOn(ctx context.Context, o options) error {
	if len(o.args) < 2 {
		return errors.New("which machine, and what?\n" + usage)
	}
	pid, err := os.ReadFile(kubeadm.PIDFile(o.dir, o.args[0]))
	if err != nil {
		return fmt.Errorf("find the machine %s: %w", o.args[0], err)
	}
	first, err := strconv.Atoi(string(pid))
	if err != nil {
		return fmt.Errorf("find the machine %s: %w", o.args[0], err)
	}
	in := []string{"--target", strconv.Itoa(first), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--"}
	cmd := exec.CommandContext(ctx, "nsenter", append(in, o.args[1:]...)...)
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
