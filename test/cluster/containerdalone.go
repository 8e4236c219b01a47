package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/edgehub-io/edgehub/test/cluster/images"
	"github.com/edgehub-io/edgehub/test/cluster/tempdir"
)

// ContainerdOptions describe which containerd to start. The zero value is the one that
// is installed, in a fresh folder.
type ContainerdOptions struct {
	// Dir is where its content, its configuration and its log go, and stay. Empty: a
	// fresh folder under os.TempDir(), which goes with Close.
	Dir string
	// Version is which containerd it is. One that has to be built is, once.
	Version ContainerdVersion
	// HostsDir is the folder that describes how to reach registries, as /etc/containerd/
	// certs.d does; empty: certs.d in Dir. See images.Registry.WriteHosts.
	HostsDir string
	// Snapshotter is what images are unpacked with; empty: overlayfs where that works
	// in Dir, else native.
	Snapshotter string
	// Env are variables of its environment, as NAME=value, besides those of this program.
	Env []string
	// Log receives one line per step; nil: discarded.
	Log io.Writer
}

// Containerd is a containerd without a kubelet: its own content, socket and mounts,
// and CRI in it. It takes root, and pulls and unpacks images; pods take a Node. As a
// Process it can be killed, frozen and started again; what it has stored stays.
type Containerd struct {
	*Process
	dir      string
	temp     *tempdir.Dir // dir, if it was made here
	state    *tempdir.Dir // short: there is a socket in it
	hosts    string
	launcher *launcher
	first    bool // nothing had made defaultState before
}

// defaultState is a folder that containerd makes from 1.7 on whatever its
// configuration says, and keeps empty without pods.
const defaultState = "/run/containerd"

// StartContainerd starts a containerd and returns when it serves. It lives until
// Close, whatever happens to ctx.
func StartContainerd(ctx context.Context, o ContainerdOptions) (*Containerd, error) {
	c, err := newContainerdAlone(ctx, o)
	if err == nil {
		err = c.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("containerd: %w", err), c.Close())
	}
	return c, nil
}

// newContainerdAlone returns what there is to close even with an error.
func newContainerdAlone(ctx context.Context, o ContainerdOptions) (*Containerd, error) {
	c := &Containerd{Process: &Process{name: "containerd"}, dir: o.Dir, hosts: o.HostsDir, first: !exists(defaultState)}
	program, err := findContainerd(ctx, o.Version, newProgress(o.Log))
	if err != nil {
		return c, err
	}
	if err := c.makeFolders(); err != nil {
		return c, err
	}
	if c.launcher, err = newLauncher(nil); err != nil {
		return c, err
	}
	if o.Snapshotter == "" {
		o.Snapshotter = snapshotterFor(c.dir)
	}
	config := containerdSettings{
		root:        filepath.Join(c.dir, "root"),
		state:       c.state.Path,
		socket:      c.Socket(),
		snapshotter: o.Snapshotter,
		pause:       "none.example.com/pause:1", // for pods, which there are none of
		plugins:     filepath.Join(c.dir, "cni"),
		networks:    filepath.Join(c.dir, "cni"),
		hosts:       c.hosts,
	}
	configFile := filepath.Join(c.dir, "containerd.toml")
	if err := writeFile(configFile, config.fill(program.config)); err != nil {
		return c, err
	}
	c.Process = &Process{
		name:    "containerd",
		logFile: filepath.Join(c.dir, "containerd.log"),
		start:   c.launcher.start,
		command: func() *exec.Cmd {
			cmd := program.command(configFile)
			cmd.Env = append(cmd.Environ(), o.Env...)
			// Mounts of its own go with it when it is killed while it unpacks.
			cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
			return cmd
		},
		ready: func(ctx context.Context) error { return answersAt(ctx, c.Socket()) },
	}
	return c, nil
}

func (c *Containerd) makeFolders() error {
	var err error
	if c.dir == "" {
		if c.temp, err = tempdir.Make("containerd"); err != nil {
			return err
		}
		c.dir = c.temp.Path
	}
	if c.dir, err = filepath.Abs(c.dir); err != nil {
		return err
	}
	if c.hosts == "" {
		c.hosts = filepath.Join(c.dir, "certs.d")
	}
	if err := os.MkdirAll(c.hosts, 0o755); err != nil {
		return err
	}
	// The path of a socket may have 107 bytes, and the folders of tests have long
	// names.
	c.state, err = tempdir.Make("ctrd")
	return err
}

// Socket is where its API is, the same after each start.
func (c *Containerd) Socket() string { return filepath.Join(c.state.Path, "containerd.sock") }

// Dir is where its content, its configuration and its log are.
func (c *Containerd) Dir() string { return c.dir }

// HostsDir describes how to reach registries.
func (c *Containerd) HostsDir() string { return c.hosts }

// Trust has it pull from a registry, in the way that this registry serves.
func (c *Containerd) Trust(registry *images.Registry) error {
	return registry.WriteHosts(c.hosts, registry.Addr())
}

// Close kills it. Its folder stays, unless it was made by StartContainerd.
func (c *Containerd) Close() error {
	errs := []error{c.Kill()}
	if c.first {
		_ = os.Remove(defaultState) // stays when another has put something there
	}
	if c.launcher != nil {
		c.launcher.close()
		c.launcher = nil
	}
	for _, dir := range []*tempdir.Dir{c.state, c.temp} {
		if dir != nil {
			errs = append(errs, dir.Remove())
		}
	}
	return errors.Join(errs...)
}
