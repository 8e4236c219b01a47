package install

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/files"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/systemctl"
)

// UninstallOptions are the options of an uninstall.
type UninstallOptions struct {
	Wait   time.Duration
	DryRun bool
	Force  bool
	Purge  bool
}

// AddFlags binds o to fs.
func (o *UninstallOptions) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.DryRun, "dry-run", false, "say what would be put back, and change nothing")
	fs.DurationVar(&o.Wait, "wait", DefaultWait, "how long the node may take to be Ready on its own")
	fs.BoolVar(&o.Force, "force", false, "also where a file was changed since edgehub wrote it, and while the apiserver cannot be reached")
	fs.BoolVar(&o.Purge, "purge", false, "also remove the hub's folder: its cache and its certificates")
}

// Uninstall restores every file as it was before the first install, byte for byte, and removes
// what was not there. It then waits until the node is Ready without the hub; if that fails, it
// returns an error, but does not undo the uninstall.
func Uninstall(ctx context.Context, o UninstallOptions, out io.Writer) error {
	if err := checkPrerequisites(); err != nil {
		return err
	}
	r, err := readRecord()
	if err != nil {
		return err
	}
	if r.Installed == nil && r.Change == nil {
		fmt.Fprintln(out, "edgehub is not installed on this node; nothing was changed")
		return nil
	}
	if o.DryRun {
		return r.describe(out)
	}
	j, err := openJournal()
	if err != nil {
		return err
	}
	defer j.close()
	if err := j.recoverChange(ctx, max(o.Wait, DefaultWait), out); err != nil {
		return err
	}
	if j.Installed == nil {
		fmt.Fprintln(out, "done: edgehub is not installed on this node")
		return nil
	}
	if err := j.checkUninstall(ctx, o.Force, out); err != nil {
		return err
	}
	j.Change = &change{Uninstall: true, Purge: o.Purge}
	if err := j.save(); err != nil {
		return err
	}
	return j.uninstall(ctx, o.Wait, out)
}

func (r record) describe(out io.Writer) error {
	if r.Change != nil {
		fmt.Fprintln(out, "an earlier change was broken off; it would be cleared up first")
	}
	if r.Installed == nil {
		return nil
	}
	fmt.Fprintln(out, "files:")
	for _, path := range slices.Sorted(maps.Keys(r.Installed.Originals)) {
		word := "put back"
		if r.Installed.Originals[path].Kind == "" {
			word = "remove  "
		}
		fmt.Fprintf(out, "  %s  %s\n", word, path)
	}
	fmt.Fprintln(out, "commands:\n  systemctl restart "+kubeletService+", and wait until the node is Ready\n  systemctl stop "+hubService+" "+hubSocket)
	fmt.Fprintln(out, "\nnothing was changed: --dry-run")
	return nil
}

// checkUninstall returns an error if files were modified, or if the node cannot reach the
// apiserver and depends on the hub.
func (j *journal) checkUninstall(ctx context.Context, force bool, out io.Writer) error {
	fmt.Fprintln(out, "checks:")
	c := &checks{out: out}
	c.checkUnmodified(j.Installed, force)
	name, cloud := j.originalNode(ctx)
	var err error
	if cloud != nil {
		_, err = cloud.Node(ctx, name)
	}
	switch {
	case cloud == nil && !force:
		c.fail("the node's own kubeconfig cannot be used, and kubelet would be left without one; --force leaves all the same")
	case cloud == nil:
		c.warn("the node's own kubeconfig cannot be used")
	case err == nil:
		c.ok("the apiserver answers for node %s", name)
	case force:
		c.warn("the apiserver does not answer: %v", err)
	default:
		c.fail("the apiserver does not answer, and without the hub the node would have nothing to live on: wait until it is back, or say --force: %v", err)
	}
	return c.result()
}

// uninstall switches kubelet to the apiserver, and then removes the hub. Each step may be repeated
// after a crash.
func (j *journal) uninstall(ctx context.Context, wait time.Duration, out io.Writer) error {
	originals := j.Installed.Originals
	if err := j.restore(map[string]files.Entry{dropInFile: originals[dropInFile]}); err != nil {
		return err
	}
	if _, err := systemctl.Run(ctx, "daemon-reload"); err != nil {
		return err
	}
	name, cloud := j.originalNode(ctx)
	fmt.Fprintln(out, "restarting kubelet on its own, and waiting until the node is Ready")
	notReady := j.restartKubelet(ctx, cloud, name, wait, "")
	if ctx.Err() != nil {
		return fmt.Errorf("uninstall was broken off; run it again to finish: %w", context.Cause(ctx))
	}
	forHubUnits(ctx, "stop")
	if err := removeInterface(ctx, &j.Installed.Options); err != nil {
		return err
	}
	if err := j.restore(originals); err != nil {
		return err
	}
	if _, err := systemctl.Run(ctx, "daemon-reload"); err != nil {
		return err
	}
	forHubUnits(ctx, "reset-failed")
	root, purge := j.Installed.RootDir, j.Change.Purge
	if purge {
		if err := os.RemoveAll(root); err != nil {
			return fmt.Errorf("remove the hub's folder: %w", err)
		}
	}
	files.RemoveDirs(j.Installed.Folders)
	j.Installed, j.Change = nil, nil
	if err := j.save(); err != nil {
		return err
	}
	if notReady != nil {
		return fmt.Errorf("edgehub is removed, but %w", notReady)
	}
	fmt.Fprintln(out, "done: the node lives on its own")
	if !purge {
		fmt.Fprintf(out, "the hub's folder %s was kept; --purge removes it\n", root)
	}
	return nil
}
