package cluster

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Dir is the cluster's folder.
func (c *Cluster) Dir() string { return c.dir }

// LogDir has one log per component: etcd.log, kube-apiserver.log, … and
// nodeN/hub.log, nodeN/kubelet.log, nodeN/containerd.log.
func (c *Cluster) LogDir() string { return c.path("logs") }

// Kubeconfig is the path of the administrator's kubeconfig; it goes straight to
// the apiserver.
func (c *Cluster) Kubeconfig() string { return c.path("kubeconfig", "admin") }

// AdminConfig is Kubeconfig as a configuration without a client-side rate limit.
// The caller may change it.
func (c *Cluster) AdminConfig() *rest.Config { return rest.CopyConfig(c.control.admin) }

// ServerURL is the apiserver's, https://127.0.0.1:PORT. It stays the same
// when the apiserver is restarted.
func (c *Cluster) ServerURL() string { return c.control.serverURL }

// ServerURLs are those of all apiservers; the first is ServerURL.
func (c *Cluster) ServerURLs() []string {
	return append([]string{c.control.serverURL}, c.control.otherURLs...)
}

// CAFile is the certificate of the cluster's authority: it has signed the
// apiserver's certificate and those of its clients.
func (c *Cluster) CAFile() string { return c.control.authority.certFile() }

// APIServer is the apiserver's process, for tests in which it fails. Freeze
// makes it hang, Kill makes it crash, Restart brings it back.
func (c *Cluster) APIServer() *Process { return c.control.apiserver }

// ControllerManager is the controller manager's process.
func (c *Cluster) ControllerManager() *Process { return c.control.controllerManager }

// ClientCert issues a client certificate that the apiserver takes for user in
// groups, and returns the paths of certificate and key. Each call makes a new pair.
func (c *Cluster) ClientCert(user string, groups ...string) (certFile, keyFile string, err error) {
	return c.ClientCertUntil(time.Time{}, user, groups...)
}

// ClientCertUntil is ClientCert for a certificate that ends at a time of the test's. It
// began a day ago.
func (c *Cluster) ClientCertUntil(end time.Time, user string, groups ...string) (certFile, keyFile string, err error) {
	file := fmt.Sprintf("client-%s-%d", strings.NewReplacer(":", "-", "/", "-").Replace(user), c.issued.Add(1))
	return c.control.authority.issue(file, identity{name: user, groups: groups, until: end})
}

// kubeconfigVariable names the kubeconfig for kubectl and for its plugins. The flag
// --kubeconfig would not reach a plugin, and kubectl looks for no plugin behind a flag.
const kubeconfigVariable = "KUBECONFIG"

// Kubectl runs kubectl as the administrator and returns what it prints. An
// error holds what kubectl complains about.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	template := c.components.command("kubectl", args...)
	cmd := exec.CommandContext(ctx, template.Path, template.Args[1:]...)
	cmd.Env = append(os.Environ(), kubeconfigVariable+"="+c.Kubeconfig())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Node is the node with that name, "node1" to "nodeN"; nil when there is none.
func (c *Cluster) Node(name string) *Node {
	for _, node := range c.nodes {
		if node.name == name {
			return node
		}
	}
	return nil
}

// Nodes are all nodes, node1 first.
func (c *Cluster) Nodes() []*Node { return slices.Clone(c.nodes) }

// PodIPs are the addresses that pods of the node have, as its network plugin knows:
// also while nobody can be asked, and those of pods that are gone among them.
func (n *Node) PodIPs() ([]string, error) {
	entries, err := os.ReadDir(n.path("var-lib", "cni", "networks", networkName))
	if err != nil {
		return nil, fmt.Errorf("find the addresses of pods: %w", err)
	}
	var all []string
	for _, entry := range entries {
		if _, err := netip.ParseAddr(entry.Name()); err == nil { // else it is a lock, or the last that was given
			all = append(all, entry.Name())
		}
	}
	return all, nil
}

// Image is the reference of the test app in one version. There are v1, v2 and
// v3, which answer GET :8080/ with their version and a newline; broken, which
// ends at once; and unready, whose /readyz always fails. Only a cluster with
// nodes has images.
func (c *Cluster) Image(version string) string {
	return c.registry.Reference(appRepository, version)
}

// ControllerProcess is the edgehub controller; nil when Options name none.
func (c *Cluster) ControllerProcess() *Process { return c.controller }

// KubectlPath is a script that runs kubectl as the administrator, for people.
func (c *Cluster) KubectlPath() string { return c.path("bin", "kubectl") }

func (c *Cluster) writeKubectl() error {
	if err := os.MkdirAll(c.path("bin"), 0o755); err != nil {
		return err
	}
	quote := func(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
	var script strings.Builder
	fmt.Fprintf(&script, "#!/bin/sh\nexport %s=%s\nexec", kubeconfigVariable, quote(c.Kubeconfig()))
	for _, arg := range c.components.command("kubectl").Args {
		script.WriteString(" " + quote(arg))
	}
	script.WriteString(" \"$@\"\n")
	return os.WriteFile(c.KubectlPath(), []byte(script.String()), 0o755)
}
