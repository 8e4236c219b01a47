package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/edgehub-io/edgehub/test/cluster/tempdir"
)

// LinkSocket is where edgehub-cluster takes requests to break a link, in the folder of a cluster.
const LinkSocket = "links.sock"

// state is what a cluster keeps in its folder besides the logs.
var state = []string{"pki", "kubeconfig", "etcd", "bin", "node*", LinkSocket}

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
	lock, err := lockDir(c.dir)
	if err != nil {
		return err
	}
	c.lock = lock
	if err := c.removeState(); err != nil {
		return err
	}
	return os.MkdirAll(c.LogDir(), 0o755)
}

// lockDir takes the lock on a cluster's folder, and leaves word who has it.
func lockDir(dir string) (*tempdir.FileLock, error) {
	lock, err := tempdir.Lock(filepath.Join(dir, "lock"))
	if errors.Is(err, tempdir.ErrLocked) {
		return nil, &inUseError{dir: dir}
	}
	if err != nil {
		return nil, fmt.Errorf("lock the cluster's folder: %w", err)
	}
	return lock, nil
}

// inUseError reports that a cluster runs in a folder.
type inUseError struct{ dir string }

func (e *inUseError) Error() string {
	return fmt.Sprintf("a cluster runs in %s already; stop it first, or name another folder", e.dir)
}

func (c *Cluster) removeState() error { return removeState(c.dir) }

func removeState(dir string) error {
	var errs []error
	for _, pattern := range state {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		errs = append(errs, err)
		for _, path := range found {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}

// path is a file or folder of the cluster's.
func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}

// Abandoned are the folders below os.TempDir() of clusters whose program was killed, among
// them those that a test has with testing.T.TempDir. They are this process's now. A folder
// in which a cluster was stopped is none: its logs are kept for people.
func Abandoned() ([]*tempdir.Dir, error) {
	var all []*tempdir.Dir
	for _, pattern := range []string{tempdir.Prefix + "*", "Test*/[0-9]*"} {
		taken, err := tempdir.Take(filepath.Join(os.TempDir(), pattern, "lock"))
		if err != nil {
			return nil, err
		}
		for _, dir := range taken {
			if hasState(dir.Path) {
				all = append(all, dir)
			} else {
				err = errors.Join(err, dir.Release())
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// hasState reports whether a cluster has been in a folder, and not been stopped.
func hasState(dir string) bool {
	return exists(filepath.Join(dir, "logs")) && exists(filepath.Join(dir, "pki"))
}
