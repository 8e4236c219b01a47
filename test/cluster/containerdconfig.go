package cluster

import (
	"context"
	"fmt"
	"net"
	"syscall"
)

// containerdSettings are what differs between one containerd and another of the
// same version.
type containerdSettings struct {
	root        string
	state       string
	socket      string
	snapshotter string
	pause       string // image
	plugins     string // folder with the network plugins
	networks    string // folder with their configuration
	hosts       string // folder that describes how to reach registries
}

func (s containerdSettings) fill(template string) string {
	return fmt.Sprintf(template, s.root, s.state, s.socket, s.snapshotter, s.pause, s.plugins, s.networks, s.hosts)
}

// containerdConfig2 is the template for containerd 1.6 and 1.7. The arguments are
// the settings in their order.
const containerdConfig2 = `version = 2
root = %[1]q
state = %[2]q
# opt would make a folder on the host, outside of what a node has of its own.
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
  address = %[3]q

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[5]q
  disable_apparmor = true
  # To lower it again takes CAP_SYS_RESOURCE, which containers and some virtual
  # machines do not grant even to root; runc then fails without a clear word.
  restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = %[4]q
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = %[6]q
  conf_dir = %[7]q
[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = %[8]q
`

// containerdConfig3 is the same for containerd 2.
const containerdConfig3 = `version = 3
root = %[1]q
state = %[2]q
# opt as above; nri, which 1.7 has disabled, would make a socket on the host.
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]
imports = []

[grpc]
  address = %[3]q

[plugins.'io.containerd.cri.v1.images']
  snapshotter = %[4]q
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = %[5]q
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = %[8]q

[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  restrict_oom_score_adj = true # as above
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = false
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = [%[6]q]
  conf_dir = %[7]q
`

// snapshotterFor is overlayfs, except where the folder is on an overlay itself,
// as in a container: one cannot lie on another.
func snapshotterFor(dir string) string {
	const overlayMagic = 0x794c7630 // OVERLAYFS_SUPER_MAGIC, linux/magic.h
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err == nil && stat.Type == overlayMagic {
		return "native"
	}
	return "overlayfs"
}

// answersAt reports whether something listens at a socket.
func answersAt(ctx context.Context, socket string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	return conn.Close()
}
