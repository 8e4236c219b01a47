package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/edgehub-io/edgehub/test/kubeadm"
)

// stopLimit is how long the machines may take to stop.
const stopLimit = time.Minute

// program is the name of this command's file.
const program = "edgehub-kubeadm"

// servers are the processes that have machines in a folder.
func servers(dir string) ([]int, error) {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		words := strings.Split(string(bytes.TrimRight(text, "\x00")), "\x00")
		// Another checkout's program may have them.
		if len(words) < 4 || filepath.Base(words[0]) != program || !slices.Equal(words[1:4], []string{serveCommand, "--dir", dir}) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// down ends what up has left running, and waits until it is gone.
func down(ctx context.Context, o options) error {
	pids, err := servers(o.dir)
	if err != nil {
		return err
	}
	if len(pids) == 0 {
		fmt.Printf("no machines are up in %s\n", o.dir)
		return removeLeftovers(o.dir)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop process %d: %w", pid, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	for {
		if pids, err := servers(o.dir); err != nil || len(pids) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the machines in %s do not stop: %w", o.dir, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// removeLeftovers removes the folder of machines whose program was killed: the kernel has ended
// them with it.
func removeLeftovers(dir string) error {
	if _, err := os.Stat(kubeadm.PIDFile(dir, "edge")); err != nil {
		return nil //nolint:nilerr // it is none of ours
	}
	return os.RemoveAll(dir)
}
