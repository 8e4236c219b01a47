package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/cluster/freeport"
	"github.com/edgehub-io/edgehub/test/cluster/link"
)

// The hub's default ports.
const (
	hubPort       = 10261
	hubSecurePort = 10268
	hubAPIPort    = 10267
)

// Node is one node: a hub on the host, and in namespaces of their own a
// containerd and a kubelet that knows no other apiserver than the hub. It has a boot ID of its own once it was powered on again.
type Node struct {
	cluster *Cluster
	name    string
	network network

	link       *link.Link
	hub        *Process
	hubStarter *launcher
	sandbox    *sandbox
	containerd *Process
	kubelet    *Process

	kubeletFields map[string]any // of its configuration
}

// Name is the name of the Node object.
func (n *Node) Name() string { return n.name }

// Addr is the loopback address of the node's hub: 127.0.0.11 for node1.
func (n *Node) Addr() string { return n.network.loopback }

// IP is the node's InternalIP, on which its kubelet serves. Host and pods of
// the node reach it.
func (n *Node) IP() string { return n.network.nodeIP }

// HubURL is where the hub serves the node's own programs, over plain HTTP; nobody does
// if Options.KubeletOnTLS is set for it.
func (n *Node) HubURL() string { return n.url("http", hubPort) }

// SecureURL is where the hub serves over TLS.
func (n *Node) SecureURL() string { return n.url("https", hubSecurePort) }

// APIURL is the hub's API for the node's owner.
func (n *Node) APIURL() string { return n.url("http", hubAPIPort) }

// Link is the network between the hub and the apiserver.
func (n *Node) Link() *link.Link { return n.link }

// HubProcess is the hub.
func (n *Node) HubProcess() *Process { return n.hub }

// KubeletProcess is the kubelet. Containers outlive it.
func (n *Node) KubeletProcess() *Process { return n.kubelet }

// ContainerdProcess is containerd. Containers outlive it.
func (n *Node) ContainerdProcess() *Process { return n.containerd }

// NodeKubeconfig is the hub's kubeconfig, with the node's client certificate.
// It goes through the link.
func (n *Node) NodeKubeconfig() string { return n.path("hub.kubeconfig") }

// HubDir is the hub's --root-dir.
func (n *Node) HubDir() string { return n.path("hub") }

// HostsDir is the folder that describes to the node's containerd how to reach registries,
// as /etc/containerd/certs.d does. It is the same on the host and in the node.
func (n *Node) HostsDir() string { return n.path("certs.d") }

// ContainerdSocket is where the host reaches the node's containerd, while the node
// runs. The path stays the same when the node is powered off and on.
func (n *Node) ContainerdSocket() string { return n.path("containerd.sock") }

func (n *Node) url(scheme string, port int) string {
	return scheme + "://" + net.JoinHostPort(n.network.loopback, strconv.Itoa(port))
}

func (n *Node) path(elements ...string) string {
	return n.cluster.path(append([]string{n.name}, elements...)...)
}

func nodeName(number int) string { return "node" + strconv.Itoa(number) }

// newNode describes a node; the registry and the control plane's certificates
// must be there.
func (c *Cluster) newNode(number int) (*Node, error) {
	n := &Node{cluster: c, name: nodeName(number), network: networkOf(number)}
	port, err := freeport.Take()
	if err != nil {
		return nil, err
	}
	if n.link, err = link.Listen(loopback(port), strings.TrimPrefix(c.control.serverURL, "https://")); err != nil {
		return nil, err
	}
	// From here on n is returned even with an error: it has a link to close.
	if n.sandbox, err = c.newSandbox(n.name); err != nil {
		return n, err
	}
	if n.hubStarter, err = n.newHubLauncher(); err != nil {
		return n, err
	}
	if n.hub, err = n.newHub(); err != nil {
		return n, err
	}
	if n.containerd, err = n.newContainerd(); err != nil {
		return n, err
	}
	n.kubelet, err = n.newKubelet()
	return n, err
}

// newHub gives the hub the node's identity. It serves when it is healthy, which
// does not take the cloud.
func (n *Node) newHub() (*Process, error) {
	authority := n.cluster.control.authority
	cert, key, err := authority.issue(n.name, identity{name: "system:node:" + n.name, groups: []string{"system:nodes"}})
	if err != nil {
		return nil, err
	}
	server := "https://" + n.link.Addr()
	config := kubeconfig{server: server, caFile: authority.certFile(), certFile: cert, keyFile: key}
	if err := config.write(n.NodeKubeconfig()); err != nil {
		return nil, err
	}
	hub := n.cluster.newProcess(n.name+"/hub", func() *exec.Cmd {
		args := []string{
			"--node-name=" + n.name,
			"--server-addr=" + server,
			"--kubeconfig=" + n.NodeKubeconfig(),
			"--bind-address=" + n.network.loopback,
			"--bind-proxy-address=" + n.network.loopback,
			"--root-dir=" + n.HubDir(),
			"--container-runtime-endpoint=unix://" + n.ContainerdSocket(),
			"--registry-config-dir=" + n.HostsDir(),
			"--kubelet-root-dir=" + n.path("var-lib", "kubelet"),
			"--kubelet-kubeconfig=" + n.kubeletKubeconfig(),
			"--image-pull-min-free=0", // a developer's disk may be full
		}
		if !n.onTLS() {
			args = append(args, "--proxy-port="+strconv.Itoa(hubPort))
		}
		if more := n.cluster.options.HubArgs; more != nil {
			args = append(args, more(n.name)...)
		}
		return command(n.cluster.options.HubBin, args...)
	}, func(ctx context.Context) error { return get(ctx, n.cluster.http, n.APIURL()+"/v1/healthz") })
	hub.start = n.hubStarter.start
	return hub, nil
}

// newProcess describes a process inside the node.
func (n *Node) newProcess(name string, command func() *exec.Cmd, ready func(context.Context) error) *Process {
	p := n.cluster.newProcess(n.name+"/"+name, command, ready)
	p.start = func(cmd *exec.Cmd) error { return n.sandbox.launcher.start(cmd) }
	return p
}

// start returns when the node is Ready in the eyes of the apiserver.
func (n *Node) start(ctx context.Context) error {
	if err := n.network.create(); err != nil {
		return err
	}
	if err := n.cluster.cgroups.create(n.name); err != nil {
		return err
	}
	group, together := errgroup.WithContext(ctx)
	group.Go(func() error { return n.hub.Start(together) })
	group.Go(func() error { return n.startRuntime(together) })
	if err := group.Wait(); err != nil {
		return err
	}
	n.cluster.log.step("%s: hub and containerd are up", n.name)
	if err := n.allowRotation(ctx); err != nil {
		return err
	}
	if err := n.kubelet.Start(ctx); err != nil {
		return err
	}
	if err := n.awaitReady(ctx); err != nil {
		return fmt.Errorf("%s does not become Ready: %w%s", n.name, err, logTail(n.kubelet.logFile))
	}
	n.cluster.log.step("%s is Ready", n.name)
	return nil
}

func (n *Node) startRuntime(ctx context.Context) error {
	if err := n.sandbox.start(ctx); err != nil {
		return err
	}
	if err := n.linkSocket(); err != nil {
		return err
	}
	return n.containerd.Start(ctx)
}

// linkSocket makes ContainerdSocket lead into the sandbox, whose path on the host is
// another after each start.
func (n *Node) linkSocket() error {
	fresh := n.ContainerdSocket() + ".new"
	_ = os.Remove(fresh)
	if err := os.Symlink(n.sandbox.root(containerdSocket), fresh); err != nil {
		return err
	}
	return os.Rename(fresh, n.ContainerdSocket())
}

func (n *Node) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return poll(ctx, func(ctx context.Context) error {
		node, err := n.cluster.control.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
				return errors.New(condition.Message)
			}
			if condition.Type == corev1.NodeReady {
				return nil
			}
		}
		return errors.New("it has no condition Ready yet")
	})
}

// stop ends everything of the node at once.
func (n *Node) stop() error {
	var errs []error
	if n.sandbox != nil {
		errs = append(errs, n.sandbox.stop())
	}
	if n.hub != nil {
		errs = append(errs, n.hub.Kill())
	}
	if n.hubStarter != nil {
		n.hubStarter.close()
	}
	return errors.Join(append(errs, n.link.Close())...)
}
