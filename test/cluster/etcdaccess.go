package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
)

// Etcd is etcd's process. Kept in EtcdDir, its data can be copied while it is
// stopped, and put back later, as after a restore from a backup; the apiserver has
// to be started again then.
func (c *Cluster) Etcd() *Process { return c.control.etcd.process }

// EtcdDir is the folder of etcd's data.
func (c *Cluster) EtcdDir() string { return c.path("etcd") }

// EtcdClient returns etcd's URL and a client with the apiserver's credentials, for tests
// that read what was really stored: etcd serves its API as JSON, at /v3/watch for one.
func (c *Cluster) EtcdClient() (url string, client *http.Client, err error) {
	client, err = c.control.etcd.client()
	return c.control.etcd.url, client, err
}

// BackUpStore copies etcd's data to an empty folder, as it would be if etcd were killed now. Meanwhile etcd stands still.
func (c *Cluster) BackUpStore(folder string) error {
	if err := c.Etcd().Freeze(); err != nil {
		return fmt.Errorf("back up etcd: %w", err)
	}
	return errors.Join(os.CopyFS(folder, os.DirFS(c.EtcdDir())), c.Etcd().Cont())
}

// RestoreStore puts etcd back to a backup, with all versions. The control plane and the controller start anew, as Kubernetes advises after a
// restore: they would wait for versions that are to come. Nodes and their hubs run on.
func (c *Cluster) RestoreStore(ctx context.Context, folder string) error {
	if err := errors.Join(c.control.kill(), os.RemoveAll(c.EtcdDir()), os.CopyFS(c.EtcdDir(), os.DirFS(folder))); err != nil {
		return fmt.Errorf("restore etcd: %w", err)
	}
	if err := c.startControlPlane(ctx); err != nil || c.controller == nil {
		return err
	}
	return c.controller.Restart(ctx)
}
