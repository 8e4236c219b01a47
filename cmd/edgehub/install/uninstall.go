package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/cache/durable"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/dummyif"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/files"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/systemctl"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/heldimages"
	"github.com/edgehub-io/edgehub/ota/api"
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
	fs.BoolVar(&o.Force, "force", false, "also where a file was changed since edgehub wrote it, while the apiserver cannot be reached, and where pods lose their apiserver")
	fs.BoolVar(&o.Purge, "purge", false, "also remove the hub's folder: its cache and its certificates")
}

// Uninstall restores every file as it was before the first install, byte for byte, and removes
// what was not there. It first has kubelet use the apiserver, and waits until the node is Ready without the hub; if
// that fails, it returns an error, but does not undo the uninstall. The hub stays as long as pods use it: pods that
// start from then on do not, and another Uninstall goes on when there are none left.
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
		r.describe(ctx, out)
		return nil
	}
	j, err := openJournal()
	if err != nil {
		return err
	}
	defer j.close()
	if c := j.Change; c != nil && c.Uninstall { // it goes on with the options of this one, too
		c.Purge, c.Strand = c.Purge || o.Purge, c.Strand || o.Force
	}
	if err := j.recoverChange(ctx, max(o.Wait, DefaultWait), out); err != nil {
		return err
	}
	if j.Installed == nil {
		fmt.Fprintln(out, "done: edgehub is not installed on this node")
		return nil
	}
	if err := j.checkUninstall(ctx, &o, out); err != nil {
		return err
	}
	j.Change = &change{Uninstall: true, Purge: o.Purge, Strand: o.Force}
	if err := j.save(); err != nil {
		return err
	}
	return j.uninstall(ctx, o.Wait, out)
}

func (r record) describe(ctx context.Context, out io.Writer) {
	if r.Change != nil {
		fmt.Fprintln(out, "an earlier change was broken off; it would be cleared up first")
	}
	if r.Installed == nil {
		return
	}
	fmt.Fprintln(out, "files:")
	for _, path := range slices.Sorted(maps.Keys(r.Installed.Originals)) {
		word := "put back"
		if r.Installed.Originals[path].Kind == "" {
			word = "remove  "
		}
		fmt.Fprintf(out, "  %s  %s\n", word, path)
	}
	fmt.Fprintln(out, "commands:\n  systemctl restart "+kubeletService+", and wait until the node is Ready")
	stop := "  when no pod uses the hub any more: systemctl stop " + hubService + " " + hubSocket
	if r.Installed.Interface != "" {
		stop += "\n  ip link delete dev " + r.Installed.Interface
	}
	fmt.Fprintln(out, stop+"\n  release the images that the hub holds in containerd")
	j := &journal{record: r}
	name, cloud, endpoint := j.originalNode(ctx)
	behind, err := podsBehind(ctx, name, cloud, endpoint, r.Installed)
	if err != nil {
		fmt.Fprintf(out, "\nit is not known which pods use the hub: %v\n", err)
	} else if len(behind) > 0 {
		fmt.Fprintln(out, "\npods that use the hub, until they are deleted once kubelet does not:")
		printRestarts(out, behind)
	}
	(&checks{out: out}).checkInPlace(r.Installed.RootDir)
	fmt.Fprintln(out, "\nnothing was changed: --dry-run")
}

// checkUninstall returns an error if files were modified, if the node cannot reach the apiserver
// and depends on the hub, or if it is not known which pods do, or some would after each restart. Whatever the
// options, it returns one if a pod would go back to the version before an upgrade in place.
func (j *journal) checkUninstall(ctx context.Context, o *UninstallOptions, out io.Writer) error {
	force := o.Force
	fmt.Fprintln(out, "checks:")
	c := &checks{out: out}
	c.checkUnmodified(j.Installed, force)
	name, cloud, endpoint := j.originalNode(ctx)
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
	behind, err := podsBehind(ctx, name, cloud, endpoint, j.Installed)
	c.checkBehind(behind, err, force)
	c.checkInPlace(j.Installed.RootDir) // last: an owner may upgrade a pod meanwhile
	return c.result()
}

// checkBehind checks what becomes of the pods that use the hub.
func (c *checks) checkBehind(behind []api.PodRoute, err error, force bool) {
	switch {
	case err != nil && force:
		c.warn("it is not known which pods use the hub: %v", err)
	case err != nil:
		c.fail("it is not known which pods use the hub, and would lose their apiserver; --force leaves all the same: %v", err)
	}
	for _, p := range behind {
		switch {
		case force:
			c.warn("pod %s/%s uses the hub, and loses its apiserver: delete it", p.Namespace, p.Name)
		case p.SetsAddress:
			c.fail("pod %s/%s uses the hub, also after a restart: %s. Do that first, or say --force to leave it without an apiserver", p.Namespace, p.Name, p.Keep)
		default:
			c.ok("pod %s/%s uses the hub, which stays until it is gone", p.Namespace, p.Name)
		}
	}
}

// stillUsed returns an error if pods use the hub, and prints what to do.
func (j *journal) stillUsed(ctx context.Context, out io.Writer) error {
	name, cloud, endpoint := j.originalNode(ctx)
	behind, err := podsBehind(ctx, name, cloud, endpoint, j.Installed)
	if err != nil || len(behind) == 0 {
		return err
	}
	fmt.Fprintln(out, "pods use the hub until they restart. Restart them soon: one that reads its CAs anew, as client-go of Kubernetes 1.36 does, no longer trusts it.\n"+
		"Delete one when the one before is Ready again:")
	printRestarts(out, behind)
	return fmt.Errorf("pod %s/%s and %d others use it", behind[0].Namespace, behind[0].Name, len(behind)-1)
}

// uninstall switches kubelet to the apiserver, and then removes the hub. Each step may be repeated
// after a crash.
func (j *journal) uninstall(ctx context.Context, wait time.Duration, out io.Writer) error {
	if err := j.restore(map[string]files.Entry{dropInFile: j.Installed.Originals[dropInFile]}); err != nil {
		return err
	}
	if _, err := systemctl.Run(ctx, "daemon-reload"); err != nil {
		return err
	}
	name, cloud, endpoint := j.originalNode(ctx)
	fmt.Fprintln(out, "restarting kubelet on its own, and waiting until the node is Ready")
	notReady := j.restartKubelet(ctx, cloud, name, wait, "")
	if ctx.Err() != nil {
		return fmt.Errorf("uninstall was broken off; run it again to finish: %w", context.Cause(ctx))
	}
	if err := j.stillUsed(ctx, out); err != nil && !j.Change.Strand {
		return fmt.Errorf("kubelet uses the apiserver again, but the hub stays, because pods use it; run uninstall again when they have restarted, or install to go back: %w", errors.Join(err, notReady))
	} else if err != nil {
		fmt.Fprintf(out, "pods lose their apiserver, by --force: %v\n", err)
	}
	root, purge := j.Installed.RootDir, j.Change.Purge
	held, err := j.removeHub(ctx, endpoint, out)
	if err != nil {
		return err
	}
	if err := errors.Join(notReady, held); err != nil {
		return fmt.Errorf("edgehub is removed, but %w", err)
	}
	fmt.Fprintln(out, "done: the node lives on its own")
	if !purge {
		fmt.Fprintf(out, "the hub's folder %s was kept; --purge removes it\n", root)
	}
	return nil
}

// removeHub removes the hub and all files of the install. held is why containerd may go on holding images.
func (j *journal) removeHub(ctx context.Context, endpoint string, out io.Writer) (held, err error) {
	j.Change.Removing = true
	if err := j.save(); err != nil {
		return nil, err
	}
	forHubUnits(ctx, "stop")
	if err := dummyif.Remove(ctx, j.Installed.Interface); err != nil {
		return nil, err
	}
	if err := j.restore(j.Installed.Originals); err != nil {
		return nil, err
	}
	if _, err := systemctl.Run(ctx, "daemon-reload"); err != nil {
		return nil, err
	}
	forHubUnits(ctx, "reset-failed")
	root := j.Installed.RootDir
	held = releaseImages(ctx, root, endpoint, out)
	if !j.Change.Strand { // those that lose their apiserver find it again after another install
		if err := durable.Remove(filepath.Join(root, "pki", config.PodCAName)); err != nil {
			return nil, fmt.Errorf("remove the CA that pods verified the hub with: %w", err)
		}
	}
	if j.Change.Purge {
		if err := os.RemoveAll(root); err != nil {
			return nil, fmt.Errorf("remove the hub's folder: %w", err)
		}
	}
	files.RemoveDirs(j.Installed.Folders)
	j.Installed, j.Change = nil, nil
	if err := j.save(); err != nil {
		return nil, err
	}
	return held, nil
}

// releaseImages releases what the hub holds in containerd: nobody else would, and kubelet's garbage collection
// could not remove it. A hub that is installed later with the same folder holds what it still wants again.
func releaseImages(ctx context.Context, root, endpoint string, out io.Writer) error {
	released, err := heldimages.Release(ctx, root, endpoint)
	for _, name := range released {
		fmt.Fprintf(out, "image %s is not held on this node any more\n", name)
	}
	return err
}
