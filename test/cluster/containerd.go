package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// containerdSocket is a path of the node's own /run, the same on every node.
const containerdSocket = "/run/containerd/containerd.sock"

// containerdConfig is for containerd 1.6 and 1.7. The arguments: snapshotter,
// pause image, folder with the network plugins, folder with their
// configuration, folder that says how to reach the registry.
const containerdConfig = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
# opt would make a folder on the host, outside of what a node has of its own.
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
  address = "` + containerdSocket + `"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[2]q
  disable_apparmor = true
  # To lower it again takes CAP_SYS_RESOURCE, which containers and some virtual
  # machines do not grant even to root; runc then fails without a clear word.
  restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = %[1]q
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = %[3]q
  conf_dir = %[4]q
[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = %[5]q
`

// hostsFile lets containerd pull from the registry over plain HTTP.
const hostsFile = `server = "http://%[1]s"
[host."http://%[1]s"]
  capabilities = ["pull", "resolve"]
`

// networkName is how the network plugins call what pods are on.
const networkName = "edgehub"

// cniConfig gives pods an address of the node's subnet on the node's bridge.
// There is no masquerading: nothing is asked of the host's firewall. The
// arguments: bridge, subnet.
const cniConfig = `{
  "cniVersion": "0.4.0",
  "name": "` + networkName + `",
  "plugins": [{
    "type": "bridge",
    "bridge": %q,
    "isGateway": true,
    "ipam": {
      "type": "host-local",
      "ranges": [[{"subnet": %q}]],
      "routes": [{"dst": "0.0.0.0/0"}]
    }
  }]
}
`

// newContainerd writes the node's configuration of containerd.
func (n *Node) newContainerd() (*Process, error) {
	plugins, err := findNetworkPlugins()
	if err != nil {
		return nil, err
	}
	registry := n.cluster.registry.Addr()
	files := map[string]string{
		"containerd.toml": fmt.Sprintf(containerdConfig, snapshotterFor(n.cluster.dir),
			n.cluster.registry.Reference(pauseRepository, pauseTag), plugins, n.path("cni"), n.path("certs.d")),
		"cni/10-edgehub.conflist":             fmt.Sprintf(cniConfig, n.network.bridge, n.network.subnet),
		"certs.d/" + registry + "/hosts.toml": fmt.Sprintf(hostsFile, registry),
	}
	for name, content := range files {
		if err := writeFile(n.path(name), content); err != nil {
			return nil, err
		}
	}
	return n.newProcess("containerd", func() *exec.Cmd {
		return command("containerd", "--config="+n.path("containerd.toml"))
	}, func(ctx context.Context) error {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "unix", n.sandbox.root(containerdSocket))
		if err != nil {
			return err
		}
		return conn.Close()
	}), nil
}

// networkPluginFolders are where distributions and releases put the plugins.
var networkPluginFolders = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}

func findNetworkPlugins() (string, error) {
	for _, folder := range networkPluginFolders {
		if isExecutable(filepath.Join(folder, "bridge")) {
			return folder, nil
		}
	}
	return "", fmt.Errorf("find the container network plugins: no executable named bridge in %s",
		strings.Join(networkPluginFolders, ", "))
}

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

func writeFile(file, content string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(content), 0o644)
}
