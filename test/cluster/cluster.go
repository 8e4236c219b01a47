package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
)

// Cluster is a running cluster. Its methods may be called from several
// goroutines.
type Cluster struct {
	options    Options
	dir        string
	log        *progress
	ports      ports
	components components
	launcher   *launcher
	lock       *os.File // held on the folder while the cluster runs

	control *controlPlane
	issued  atomic.Int64 // numbers the files of ClientCert

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
	return c.startControlPlane(ctx)
}

func (c *Cluster) startControlPlane(ctx context.Context) error {
	for _, p := range []*Process{c.control.etcd.process, c.control.apiserver, c.control.scheduler, c.control.controllerManager} {
		if err := p.Start(ctx); err != nil {
			return err
		}
		c.log.step("%s is up", p.name)
	}
	return nil
}

// Stop takes the cluster down and removes its state; the logs stay. It may be
// called several times and by several goroutines; all get the same result.
func (c *Cluster) Stop() error {
	c.stopOnce.Do(func() { c.stopErr = c.stop() })
	return c.stopErr
}

func (c *Cluster) stop() error {
	var errs []error
	if p := c.control; p != nil {
		for _, p := range []*Process{p.scheduler, p.controllerManager, p.apiserver, p.etcd.process} {
			// Nothing of what they keep is wanted: no orderly end, which takes
			// an apiserver with open watches a minute.
			errs = append(errs, p.Kill())
		}
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

// stateFolders are what a cluster keeps in its folder besides the logs.
var stateFolders = []string{"pki", "kubeconfig", "etcd"}

// openDir makes the folder, or takes it over from a cluster that is gone.
func (c *Cluster) openDir() error {
	var err error
	if c.options.Dir == "" {
		c.dir, err = os.MkdirTemp("", "edgehub-cluster-")
	} else if c.dir, err = filepath.Abs(c.options.Dir); err == nil {
		err = os.MkdirAll(c.dir, 0o755)
	}
	if err != nil {
		return fmt.Errorf("make the cluster's folder: %w", err)
	}
	lock, err := os.OpenFile(c.path("lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("lock the cluster's folder: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return fmt.Errorf("a cluster runs in %s already; stop it first, or name another folder", c.dir)
	}
	c.lock = lock
	if err := c.removeState(); err != nil {
		return err
	}
	return os.MkdirAll(c.LogDir(), 0o755)
}

func (c *Cluster) removeState() error {
	var errs []error
	for _, folder := range stateFolders {
		errs = append(errs, os.RemoveAll(c.path(folder)))
	}
	return errors.Join(errs...)
}

// path is a file or folder of the cluster's.
func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}

// newProcess describes a process of the control plane or beside the nodes; name
// may hold a slash and is the path of its log in LogDir, too.
func (c *Cluster) newProcess(name string, command func() *exec.Cmd, ready func(context.Context) error) *Process {
	return &Process{
		name:     name,
		logFile:  filepath.Join(c.LogDir(), name+".log"),
		launcher: c.launcher,
		command:  command,
		ready:    ready,
	}
}
