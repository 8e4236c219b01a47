package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/edgehub-io/edgehub/test/cluster/images"
	"github.com/edgehub-io/edgehub/test/cluster/tempdir"
)

// Cluster is a running cluster. Its methods may be called from several
// goroutines.
type Cluster struct {
	options    Options
	dir        string
	log        *progress
	components components
	launcher   *launcher
	lock       *tempdir.FileLock // held on the folder while the cluster runs

	control *controlPlane
	issued  atomic.Int64 // numbers the files of ClientCert

	// What only a cluster with nodes has.
	machine     *machineLock
	cgroups     cgroupTree
	programs    programs
	registry    *images.Registry
	containerds map[ContainerdVersion]containerdProgram // those that nodes run
	nodes       []*Node
	controller  *Process
	http        *http.Client

	stopOnce sync.Once
	stopErr  error
}

// Start starts a cluster and returns when it serves. When it fails, or ctx
// ends meanwhile, everything that was started is taken down again; the logs
// stay. Once Start has returned, the cluster lives until Stop, whatever happens
// to ctx.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("test cluster: %w", err)
	}
	c := &Cluster{options: o, log: newProgress(o.Log)}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("test cluster: %w", err), c.Stop())
	}
	c.log.step("the cluster is up; its logs are in %s", c.LogDir())
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.openDir(); err != nil {
		return err
	}
	var err error
	if c.components, err = findComponents(ctx, c.options.KubernetesBin, c.log); err != nil {
		return err
	}
	if c.launcher, err = newLauncher(nil); err != nil {
		return err
	}
	if c.control, err = c.newControlPlane(); err != nil {
		return err
	}
	group, together := errgroup.WithContext(ctx)
	group.Go(func() error { return c.startControlPlane(together) })
	if c.options.Nodes > 0 {
		group.Go(func() error { return c.prepareNodes(together) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := c.startNodes(ctx); err != nil {
		return err
	}
	return c.startController(ctx)
}

// Stop takes the cluster down and removes its state; the logs stay. It may be
// called several times and by several goroutines; all get the same result.
func (c *Cluster) Stop() error {
	c.stopOnce.Do(func() { c.stopErr = c.stop() })
	return c.stopErr
}

// stop ends everything at once, without an orderly end: nothing of what the
// components would still write is wanted, and an apiserver waits for its
// watches for a minute.
func (c *Cluster) stop() error {
	var errs []error
	if c.controller != nil {
		errs = append(errs, c.controller.Kill())
	}
	if c.machine != nil {
		errs = append(errs, c.stopNodes())
	}
	if c.control != nil {
		errs = append(errs, c.control.kill())
	}
	if c.launcher != nil {
		c.launcher.close()
	}
	if c.lock != nil {
		errs = append(errs, c.removeState(), c.lock.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop the test cluster: %w", err)
	}
	return nil
}

// newProcess describes a process of the control plane or beside the nodes; name
// may hold a slash and is the path of its log in LogDir, too.
func (c *Cluster) newProcess(name string, command func() *exec.Cmd, ready func(context.Context) error) *Process {
	return &Process{
		name:    name,
		logFile: filepath.Join(c.LogDir(), name+".log"),
		start:   c.launcher.start,
		command: command,
		ready:   ready,
	}
}
