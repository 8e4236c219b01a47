package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/apiserver"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/dummyif"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/files"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/systemctl"
)

// recoverChange rolls back an install that was interrupted, and completes an uninstall.
func (j *journal) recoverChange(ctx context.Context, wait time.Duration, out io.Writer) error {
	if j.Change == nil {
		return nil
	}
	if j.Change.Uninstall {
		if !j.Change.Removing {
			if err := j.checkReconciled(out); err != nil {
				return err
			}
		}
		fmt.Fprintln(out, "an earlier uninstall was broken off; finishing it")
		return j.uninstall(ctx, wait, out)
	}
	fmt.Fprintln(out, "an earlier install was broken off")
	name, cloud, _ := j.originalNode(ctx)
	return j.rollback(ctx, cloud, name, wait, out)
}

// keepHub has an install go on with a hub that an earlier uninstall has not begun to remove.
func (j *journal) keepHub(out io.Writer) error {
	if j.Change == nil || !j.Change.Uninstall || j.Change.Removing {
		return nil
	}
	fmt.Fprintln(out, "an earlier uninstall has led kubelet to the apiserver; the hub is still there")
	delete(j.Installed.Written, dropInFile) // it is not somebody's change
	j.Change = nil
	return j.save()
}

// originalNode returns the node's name and a client with its own credentials, or nil if there are none.
func (j *journal) originalNode(ctx context.Context) (name string, c *apiserver.Client, endpoint string) {
	o := NewOptions()
	if j.Installed != nil {
		*o = j.Installed.Options
	}
	k, err := inspectKubelet(ctx)
	if err != nil {
		return "", nil, ""
	}
	if o.Kubeconfig == "" {
		o.Kubeconfig = "/etc/kubernetes/kubelet.conf"
		if used := k.Flags["kubeconfig"]; used != kubeletKubeconfig {
			o.Kubeconfig = used
		}
	}
	quiet := &checks{out: io.Discard}
	c = quiet.checkIdentity(o, k, true)
	return o.NodeName, c, k.Endpoint
}

// rollback restores everything as it was before the change in progress, and restarts the services
// that the change affects. It may be called again after a crash.
func (j *journal) rollback(ctx context.Context, c *apiserver.Client, name string, wait time.Duration, out io.Writer) error {
	fmt.Fprintln(out, "putting everything back as it was")
	ch := j.Change
	first := j.Installed == nil
	if first || ch.Sockets {
		forHubUnits(ctx, "stop")
	}
	if err := dummyif.Remove(ctx, ch.Interface); err != nil {
		return err
	}
	if ch.Interface != "" && ch.Kubelet {
		fmt.Fprintln(out, "pods that have started since kubelet was restarted have no apiserver: delete them")
	}
	if err := j.restore(ch.Before); err != nil {
		return err
	}
	files.RemoveDirs(ch.Folders)
	if _, err := systemctl.Run(ctx, "daemon-reload"); err != nil {
		return err
	}
	var errs []error
	if first {
		forHubUnits(ctx, "reset-failed")
		if ch.FreshRoot != "" {
			errs = append(errs, releaseImages(ctx, ch.FreshRoot, "", out), os.RemoveAll(ch.FreshRoot))
		}
	} else if _, err := systemctl.Run(ctx, "start", hubSocket); err != nil {
		errs = append(errs, fmt.Errorf("%w%s", err, heldBy(ctx, installedSockets()...)), j.bypassHub(ctx, out))
	} else {
		errs = append(errs, restartHub(ctx, wait, ""))
	}
	if ch.Kubelet {
		if c != nil {
			fmt.Fprintln(out, "restarting kubelet as it was, and waiting until the node is Ready")
		}
		errs = append(errs, j.restartKubelet(ctx, c, name, wait, ""))
	}
	j.Change = nil
	errs = append(errs, j.save())
	j.prune()
	return errors.Join(errs...)
}

// bypassHub leads kubelet to the apiserver, since the hub's ports are not the hub's: nobody, or
// another program, would answer kubelet there.
func (j *journal) bypassHub(ctx context.Context, out io.Writer) error {
	fmt.Fprintln(out, "the hub's ports cannot be opened: until edgehub install succeeds, kubelet talks to the apiserver itself, and pods that use the hub have none")
	if err := j.restore(map[string]files.Entry{dropInFile: j.Installed.Originals[dropInFile]}); err != nil {
		return err
	}
	delete(j.Installed.Written, dropInFile) // it is not somebody's change
	if _, err := systemctl.Run(ctx, "daemon-reload"); err != nil {
		return err
	}
	return j.noteKubelet()
}

// forHubUnits runs a command of systemctl for the hub's units, which may not exist: stop, or
// reset-failed, after which systemd forgets the failures of units that are gone.
func forHubUnits(ctx context.Context, command string) {
	units := []string{hubService, hubSocket}
	if command != "stop" { // which edgehub-rejoin.service itself may run
		units = append(units, rejoinService)
	}
	for _, unit := range units {
		_, _ = systemctl.Run(ctx, command, unit)
	}
}
