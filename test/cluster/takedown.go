package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// TakeDown stops the cluster that runs in dir in another program, by asking that
// program to end (SIGTERM), and removes what a cluster there has left that
// crashed. It returns when all of it is gone. Where there is no cluster, there
// is nothing to do and no error.
func TakeDown(ctx context.Context, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("take down the test cluster: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "lock")); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	lock, err := takeOver(ctx, dir)
	if err != nil {
		return fmt.Errorf("take down the test cluster: %w", err)
	}
	defer lock.Close()
	if err := errors.Join(removeStrayTraces(ctx), removeState(dir)); err != nil {
		return fmt.Errorf("take down the test cluster: %w", err)
	}
	return nil
}

// takeOver returns with the lock on the folder, when its holder has ended.
func takeOver(ctx context.Context, dir string) (*os.File, error) {
	var lock *os.File
	told := false
	err := poll(ctx, func(context.Context) error {
		var err error
		lock, err = lockDir(dir)
		var inUse *inUseError
		if !errors.As(err, &inUse) || told {
			return err
		}
		told = true
		return errors.Join(err, endHolder(dir))
	})
	return lock, err
}

// endHolder asks the program to end that has the lock. The number in the file is
// its own: whoever gets the lock writes it, and the lock ends with its holder.
func endHolder(dir string) error {
	content, err := os.ReadFile(filepath.Join(dir, "lock"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || pid <= 1 {
		return fmt.Errorf("%s does not tell who runs the cluster", filepath.Join(dir, "lock"))
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("end process %d, which runs the cluster: %w", pid, err)
	}
	return nil
}

// removeStrayTraces removes what nodes have left in the kernel, unless they are
// another cluster's.
func removeStrayTraces(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return nil // there were no nodes
	}
	ctx, cancel := context.WithTimeout(ctx, pollInterval)
	defer cancel()
	machine, err := lockMachine(ctx, "", func(string) {})
	if err != nil {
		return nil
	}
	cgroups, err := findCgroups()
	if err == nil {
		err = removeTraces(cgroups)
	}
	return errors.Join(err, machine.release())
}
