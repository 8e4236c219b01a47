package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// stateFolders are what a cluster keeps in its folder besides the logs.
var stateFolders = []string{"pki", "kubeconfig", "etcd", "bin", "node*"}

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
	for _, pattern := range stateFolders {
		folders, err := filepath.Glob(c.path(pattern))
		errs = append(errs, err)
		for _, folder := range folders {
			errs = append(errs, os.RemoveAll(folder))
		}
	}
	return errors.Join(errs...)
}

// path is a file or folder of the cluster's.
func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}
