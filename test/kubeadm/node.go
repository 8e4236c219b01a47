package kubeadm

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"github.com/edgehub-io/edgehub/test/install/machine"
)

//go:embed files
var files embed.FS

// values fill the templates in files.
type values struct {
	Control, Edge, ControlIP             string
	PodNetwork, Registry, Pause, Version string
	FlannelTag, Ignore, Token, CAHash    string
	Proxy                                string
}

func (c *Cluster) values() values {
	return values{
		Control: control, Edge: edge, ControlIP: controlIP,
		PodNetwork: podNetwork, Registry: c.registry.Addr(), Pause: c.registry.Reference("pause", c.tags["pause"]),
		Version: c.tags["kube-apiserver"], FlannelTag: c.tags["flannel"], Ignore: ignored(),
		Proxy: siteProxy,
	}
}

// ignored are kubeadm's checks that this host cannot pass, as YAML.
func ignored() string {
	// Control groups of version 1: kubeadm demands that this check is skipped then.
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
		return "[SystemVerification]"
	}
	return "[]"
}

func render(name string, v values) (string, error) {
	text, err := template.ParseFS(files, "files/"+name)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = text.Execute(&out, v)
	return out.String(), err
}

// boot boots a machine that has what a node needs before kubeadm: containerd, kubelet and
// kubeadm, their units, and flannel's plugin with its configuration.
func (c *Cluster) boot(ctx context.Context, name string) (*machine.Machine, error) {
	disk := filepath.Join(c.options.Dir, name)
	if err := os.MkdirAll(disk, 0o755); err != nil {
		return nil, err
	}
	const shim = "/containerd-shim-runc-v2"
	binds := map[string]string{
		"/usr/bin/kubernetes":       c.programs.kubernetes,
		"/usr/local/bin/containerd": c.programs.containerd + "/containerd",
		"/usr/local/bin" + shim:     c.programs.containerd + shim,
		"/usr/lib/cni/flannel":      c.programs.addons.FlannelPlugin,
	}
	address := map[string]string{control: controlIP, edge: edgeIP}[name]
	m, err := machine.New(ctx, machine.Options{
		Name: name, Binds: binds, Disk: disk,
		Wire: machine.Wire{Bridge: bridge, Host: hostIP + prefix, Address: address + prefix},
	})
	if err != nil {
		return nil, err
	}
	return m, errors.Join(c.writePID(name, m), c.prepare(ctx, m))
}

func (c *Cluster) prepare(ctx context.Context, m *machine.Machine) error {
	for path, name := range map[string]string{
		"/etc/containerd/config.toml":                           "containerd.toml",
		"/etc/containerd/conf.d/images.toml":                    "images.toml",
		"/etc/cni/net.d/10-flannel.conflist":                    "10-flannel.conflist",
		"/usr/lib/test-units/containerd.service":                "containerd.service",
		"/usr/lib/test-units/forward.service":                   "forward.service",
		"/usr/lib/test-units/kubelet.service":                   "kubelet.service",
		"/usr/lib/test-units/kubelet.service.d/10-kubeadm.conf": "10-kubeadm.conf",
	} {
		if err := c.put(m, name, path); err != nil {
			return err
		}
	}
	// CoreDNS forwards other names to a server that is not there.
	if err := m.Write("/etc/resolv.conf", "nameserver "+hostIP+"\n", 0o644); err != nil {
		return err
	}
	if err := os.MkdirAll(m.Path("/etc/kubernetes/manifests"), 0o755); err != nil { // kubelet's package has it
		return err
	}
	for _, name := range []string{"kubelet", "kubeadm", "kubectl"} {
		if err := os.Symlink("kubernetes", m.Path("/usr/bin/"+name)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if err := c.registry.WriteHosts(m.Path("/etc/containerd/registries.d"), c.registry.Addr()); err != nil {
		return err
	}
	_, err := m.Run(ctx, "sh", "-c", "systemctl daemon-reload && systemctl enable --now forward.service containerd.service && systemctl enable kubelet.service")
	return err
}

// put writes one of the files to a machine.
func (c *Cluster) put(m *machine.Machine, name, path string) error {
	text, err := render(name, c.values())
	if err == nil {
		err = m.Write(path, text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
