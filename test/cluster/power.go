package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
)

// PowerOff ends all that runs on the node at once, as when its plug is pulled:
// containers, kubelet, containerd and hub. What was in memory is gone, tmpfs mounts
// and /run included; what was written is still there. The link stays as it is.
//
// PowerOff and PowerOn of one node are not for several goroutines at once.
func (n *Node) PowerOff() error {
	// The end of the first process is the end of all others in the node; Kill waits
	// until they are reaped.
	errs := []error{n.sandbox.stop(), n.hub.Kill(), n.kubelet.Kill(), n.containerd.Kill()}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	return errors.Join(append(errs, n.cluster.cgroups.remove(ctx, n.name))...)
}

// PowerOn starts what PowerOff has ended, and returns when hub, containerd and
// kubelet serve. The node has another boot ID then. It asks nothing of the apiserver, which may be out of reach.
func (n *Node) PowerOn(ctx context.Context) error {
	if err := n.newBoot(); err != nil {
		return err
	}
	if err := n.cluster.cgroups.create(n.name); err != nil {
		return err
	}
	group, together := errgroup.WithContext(ctx)
	group.Go(func() error { return n.hub.Start(together) })
	group.Go(func() error { return n.startRuntime(together) })
	if err := group.Wait(); err != nil {
		return err
	}
	return n.StartKubelet(ctx)
}

// StartKubelet starts kubelet soon after containerd, and again if it ends, as systemd does: it ends if containerd listens and
// has not set up its CRI yet.
func (n *Node) StartKubelet(ctx context.Context) error {
	err := n.kubelet.Start(ctx)
	for range kubeletRestarts {
		if err == nil || ctx.Err() != nil {
			break
		}
		err = n.kubelet.Start(ctx)
	}
	return err
}

// kubeletRestarts is how often a kubelet that ends at once is started again.
const kubeletRestarts = 3

// KillContainer kills the processes of one container, as the kernel does when
// memory runs out. id is as in a pod's status, "containerd://…".
func (n *Node) KillContainer(id string) error {
	_, name, ok := strings.Cut(id, "://")
	if !ok {
		return fmt.Errorf("kill container: %q is no container's id", id)
	}
	group, err := n.cluster.cgroups.find(n.name, name)
	if err != nil {
		return fmt.Errorf("kill container: %w", err)
	}
	return killGroup(group)
}

// find returns a folder below a node's control group, in one of the hierarchies.
func (t cgroupTree) find(node, name string) (string, error) {
	mount := t.v2
	if len(t.v1) > 0 {
		mount = t.v1[0]
	}
	var found string
	root := filepath.Join(mount, cgroupRoot, node)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // a group that has gone since
			return nil
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == name:
			found = path
			return fs.SkipAll
		}
		return nil
	})
	if err == nil && found == "" {
		err = fmt.Errorf("nothing with that name runs on %s", node)
	}
	return found, err
}
