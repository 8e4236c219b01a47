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

	"github.com/edgehub-io/edgehub/test/cluster/tempdir"
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
func takeOver(ctx context.Context, dir string) (*tempdir.FileLock, error) {
	var lock *tempdir.FileLock
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
	_, err := RemoveStray(ctx, func(string, string) {})
	return err
}

// RemoveStray ends what runs in the control groups of nodes, and removes those and the
// bridges, the ones of machines that [ClaimMachine] is for among them. It calls found with
// the kind and the name of each thing before. While a cluster with nodes lives, RemoveStray
// does nothing, and returns where that is.
func RemoveStray(ctx context.Context, found func(kind, name string)) (holder string, err error) {
	if os.Geteuid() != 0 {
		return "", nil // there were no nodes
	}
	machine, holder, err := tryMachine(ctx, nodesLock, "(a program that removes what clusters have left)")
	if machine == nil {
		return holder, err
	}
	defer func() { err = errors.Join(err, machine.release()) }()
	cgroups, err := findCgroups()
	if err != nil {
		return "", err
	}
	for _, group := range cgroups.roots() {
		if err := ListGroup(group, found); err != nil {
			return "", err
		}
	}
	bridges, err := findBridges()
	for _, bridge := range bridges {
		found("interface", filepath.Base(bridge))
	}
	return "", errors.Join(err, removeTraces(cgroups))
}
