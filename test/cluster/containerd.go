package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// containerdSocket is a path of the node's own /run, the same on every node.
const containerdSocket = "/run/containerd/containerd.sock"

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
	config := containerdSettings{
		root:        "/var/lib/containerd",
		state:       "/run/containerd",
		socket:      containerdSocket,
		snapshotter: snapshotterFor(n.cluster.dir),
		pause:       n.cluster.registry.Reference(pauseRepository, pauseTag),
		plugins:     plugins,
		networks:    n.path("cni"),
		hosts:       n.HostsDir(),
	}
	program := n.cluster.containerds[n.cluster.options.containerdOf(n.name)]
	files := map[string]string{
		"containerd.toml":         config.fill(program.config),
		"cni/10-edgehub.conflist": fmt.Sprintf(cniConfig, n.network.bridge, n.network.subnet),
	}
	for name, content := range files {
		if err := writeFile(n.path(name), content); err != nil {
			return nil, err
		}
	}
	registry := n.cluster.registry
	if err := registry.WriteHosts(n.HostsDir(), registry.Addr()); err != nil {
		return nil, err
	}
	return n.newProcess("containerd", func() *exec.Cmd {
		return program.command(n.path("containerd.toml"))
	}, func(ctx context.Context) error { return answersAt(ctx, n.sandbox.root(containerdSocket)) }), nil
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

func writeFile(file, content string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(content), 0o644)
}
