// Command nodeinit is process 1 of one node of the test cluster. It runs in new
// process and mount namespaces, gives the node folders of its own where the
// node's programs have paths that cannot be set, and then only reaps.
//
// The kernel ends with it whatever runs in the node, containers included, and
// drops all mounts of the node: that is how a node is taken down, and why
// nothing of it outlives a test that is killed.
//
// The one argument is a nodeplan.Plan as JSON. nodeplan.Ready appears when all
// is in place; the node's /run is visible from outside as /proc/PID/root/run.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/edgehub-io/edgehub/test/cluster/internal/nodeplan"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nodeinit:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 || os.Getpid() != 1 {
		return errors.New("it takes one argument, and must be process 1 of a new process namespace")
	}
	var plan nodeplan.Plan
	if err := json.Unmarshal([]byte(args[0]), &plan); err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	children := make(chan os.Signal, 1) // one is enough: reap takes all there are
	signal.Notify(children, unix.SIGCHLD)
	if err := arrange(plan); err != nil {
		return err
	}
	if err := os.WriteFile(nodeplan.Ready, nil, 0o644); err != nil {
		return err
	}
	for range children {
		reap()
	}
	return nil
}

// arrange makes the mounts. The source of each is opened before the first of
// them is made, since one may hide another.
func arrange(plan nodeplan.Plan) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("part from the mounts of the host: %w", err)
	}
	// Shared within the node: kubelet and runtime pass mounts on to containers.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts within the node: %w", err)
	}
	binds, err := openBinds(plan)
	if err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, folder := range plan.Empty {
		if err := unix.Mount("tmpfs", folder, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
			return fmt.Errorf("empty %s: %w", folder, err)
		}
	}
	for _, b := range binds {
		if err := b.mount(); err != nil {
			return err
		}
	}
	return nil
}

// bind is a file or folder that shall appear at a path.
type bind struct {
	source *os.File
	target string
	keep   bool // only if something has hidden it there
}

func openBinds(plan nodeplan.Plan) ([]bind, error) {
	var binds []bind
	add := func(source, target string, keep bool) error {
		file, err := os.OpenFile(source, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("bind %s: %w", target, err)
		}
		binds = append(binds, bind{source: file, target: target, keep: keep})
		return nil
	}
	for _, b := range plan.Binds {
		if err := add(b.Source, b.Target, false); err != nil {
			return nil, err
		}
	}
	for _, folder := range plan.Keep {
		if err := add(folder, folder, true); err != nil {
			return nil, err
		}
	}
	return binds, nil
}

func (b bind) mount() error {
	defer b.source.Close()
	if b.keep {
		if _, err := os.Stat(b.target); err == nil {
			return nil
		}
		if err := os.MkdirAll(b.target, 0o755); err != nil {
			return fmt.Errorf("keep %s: %w", b.target, err)
		}
	}
	source := fmt.Sprintf("/proc/self/fd/%d", b.source.Fd())
	if err := unix.Mount(source, b.target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", b.target, err)
	}
	return nil
}

// reap takes leave of every child that has ended: containers' shims and what
// their parents have left behind end up here.
func reap() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
