package leftovers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/cluster/tempdir"
	"github.com/edgehub-io/edgehub/test/install/machine"
)

// limit is how long processes may take to end that were killed: the kernel has to get round
// to it.
const limit = time.Minute

// Clean ends and removes what runs that were killed have left, and writes a line to log for
// each kind of it, for each run that lives and was left alone, and one if there is nothing.
// An error says what stays; all else is removed then, too. It may be called again.
func Clean(ctx context.Context, log io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r := &report{names: map[string][]string{}}
	folders, err := endAbandoned(ctx, r.found)
	errs := []error{err}
	if os.Geteuid() == 0 {
		errs = append(errs, removeStray(ctx, r)...)
	}
	errs = append(errs, unmount(folders, r.found))
	for _, folder := range folders {
		// A mount that stays is somebody's files.
		if mounted, err := mountsBelow(folder.Path); err != nil || len(mounted) > 0 {
			errs = append(errs, fmt.Errorf("remove %s: something is mounted in it: %s %w", folder.Path, mounted, err), folder.Release())
			continue
		}
		r.found("folder", folder.Path)
		errs = append(errs, folder.Remove())
	}
	errs = append(errs, cluster.RemoveUnfinishedBuilds(r.found))
	r.write(log)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what was left by a run that was killed: %w", err)
	}
	return nil
}

// endAbandoned ends the processes of folders whose owner has ended, and returns the folders:
// more of them have no owner then.
func endAbandoned(ctx context.Context, found found) (all []*tempdir.Dir, err error) {
	for {
		folders, err := abandoned()
		all = append(all, folders...)
		if err != nil || len(folders) == 0 {
			return all, err
		}
		if err := endProcesses(ctx, all, found); err != nil {
			return all, err
		}
	}
}

// abandoned are the folders of processes that have ended.
func abandoned() ([]*tempdir.Dir, error) {
	folders, err := tempdir.Abandoned()
	clusters, clustersErr := cluster.Abandoned()
	return append(folders, clusters...), errors.Join(err, clustersErr)
}

// removeStray removes what only root can have left.
func removeStray(ctx context.Context, r *report) []error {
	holder, err := cluster.RemoveStray(ctx, r.found)
	if holder != "" {
		r.lives("nodes", holder)
	}
	running, machineErr := machine.RemoveStray(ctx, r.found)
	for _, name := range running {
		r.lives("machine", name)
	}
	return []error{err, machineErr, removeSlices(ctx, r.found)}
}

// removeSlices removes the control groups of integration/callers.
func removeSlices(ctx context.Context, found found) error {
	hierarchies, err := machine.Hierarchies()
	errs := []error{err}
	for _, h := range hierarchies {
		groups, err := filepath.Glob(filepath.Join(h.Path, "edgehub-callers-*.slice"))
		errs = append(errs, err)
		for _, group := range groups {
			if pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(group), "edgehub-callers-"), "-"); !lives(pid) {
				errs = append(errs, cluster.ListGroup(group, found), cluster.RemoveGroup(ctx, group))
			}
		}
	}
	return errors.Join(errs...)
}

// found is called with what is about to be removed.
type found = func(kind, name string)

// report is what was found, by kind, in the order in which it was.
type report struct {
	kinds, running []string
	names          map[string][]string
}

func (r *report) found(kind, name string) {
	if slices.Contains(r.names[kind], name) {
		return // a process is in a control group of each hierarchy
	}
	if r.names[kind] == nil {
		r.kinds = append(r.kinds, kind)
	}
	r.names[kind] = append(r.names[kind], name)
}

func (r *report) lives(kind, name string) {
	r.running = append(r.running, fmt.Sprintf("%s of a run that lives, left alone: %s", kind, name))
}

func (r *report) write(log io.Writer) {
	for _, line := range r.running {
		fmt.Fprintln(log, line)
	}
	for _, kind := range r.kinds {
		fmt.Fprintf(log, "left by a run that was killed, removed: %s (%d): %s\n", kind, len(r.names[kind]), strings.Join(r.names[kind], ", "))
	}
	if len(r.kinds) == 0 {
		fmt.Fprintln(log, "nothing was left by a run that was killed")
	}
}

// unmount lets go of file systems that are in the folders, or that a process has mounted which
// is gone.
func unmount(folders []*tempdir.Dir, found found) error {
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	var errs []error
	for i := len(mounts) - 1; i >= 0; i-- { // what was mounted last may be on what was before
		m := mounts[i]
		if !m.stray() && !within(m.target, folders) {
			continue
		}
		found("mount", m.target)
		if err := unix.Unmount(m.target, unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m.target, err))
		}
	}
	return errors.Join(errs...)
}
