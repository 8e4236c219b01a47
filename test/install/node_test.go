package install

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/cluster/freeport"
	"github.com/edgehub-io/edgehub/test/cluster/images"
	"github.com/edgehub-io/edgehub/test/cluster/link"
	"github.com/edgehub-io/edgehub/test/install/machine"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

const nodeName = "edge1"

// node is a machine that is a node as kubeadm sets one up: its own kubelet.service with
// kubeadm's drop-in, and kubelet straight at the apiserver.
type node struct {
	*machine.Machine
	t       *testing.T
	cluster *cluster.Cluster
	client  kubernetes.Interface
	link    *link.Link // between the machine and the apiserver
	image   string
	version int // of builds
}

// kubeletUnit and kubeadmDropIn are what Kubernetes' own packages install, word for word
// but for the pause between two starts, which is 10 s there.
const kubeletUnit = `[Unit]
Description=kubelet: The Kubernetes Node Agent
Documentation=https://kubernetes.io/docs/
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=1

[Install]
WantedBy=multi-user.target
`

const kubeadmDropIn = `# Note: This dropin only works with kubeadm and kubelet v1.11+
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
# This is a file that "kubeadm init" and "kubeadm join" generate at runtime, populating
# the KUBELET_KUBEADM_ARGS variable dynamically
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
# This is a file that the user can use for overrides of the kubelet args as a last resort. Preferably,
# the user should use the .NodeRegistration.KubeletExtraArgs object in the configuration files instead.
# KUBELET_EXTRA_ARGS should be sourced from this file.
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`

const containerdUnit = `[Unit]
Description=containerd container runtime
[Service]
ExecStart=/usr/bin/containerd
Type=notify
Delegate=yes
KillMode=process
Restart=always
[Install]
WantedBy=multi-user.target
`

const containerdConfig = `version = 2
disabled_plugins = ["io.containerd.internal.v1.opt"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  disable_apparmor = true
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = "/etc/containerd/certs.d"
`

const networkConfig = `{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "198.19.251.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization: {mode: Webhook}
rotateCertificates: true
staticPodPath: /etc/kubernetes/manifests
# What a kubeadm node has not: a machine in a machine, with old control groups perhaps.
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
resolvConf: ""
volumePluginDir: /var/lib/kubelet/volumeplugins
evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
`

// kubeletPart is in a folder, as with --config-dir.
const kubeletPart = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
`

func newNode(t *testing.T) *node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // the first one builds Kubernetes
	defer cancel()
	began := time.Now()
	c, err := cluster.Start(ctx, cluster.Options{Dir: t.TempDir(), Log: os.Stderr, APIServerArgs: []string{"--enable-bootstrap-token-auth"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	n := &node{t: t, cluster: c}
	if n.client, err = kubernetes.NewForConfig(c.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	kubernetesBinary, err := cluster.BuildKubernetes(ctx, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	n.Machine, err = machine.Boot(ctx, map[string]string{"/usr/bin/kubernetes": kubernetesBinary})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := n.Run(context.Background(), "journalctl", "--no-pager", "--lines=80", "--output=short")
			t.Logf("the end of the machine's journal:\n%s", out)
		}
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	n.reachApiserver()
	registry := n.serveImages()
	n.write("/etc/containerd/config.toml", fmt.Sprintf(containerdConfig, registry.Reference("pause", "1")))
	if err := registry.WriteHosts(n.Path("/etc/containerd/certs.d"), registry.Addr()); err != nil {
		t.Fatal(err)
	}
	n.write("/etc/cni/net.d/10-pods.conflist", networkConfig)
	n.write("/usr/lib/test-units/containerd.service", containerdUnit)
	n.joinAsKubeadm()
	n.systemctl("daemon-reload")
	n.systemctl("enable", "--now", "containerd.service", "kubelet.service")
	n.awaitReady()
	t.Logf("a node as kubeadm sets it up was Ready after %v", time.Since(began).Round(time.Millisecond))
	return n
}

// joinAsKubeadm writes what kubeadm join does.
func (n *node) joinAsKubeadm() {
	n.t.Helper()
	certFile, keyFile, err := n.cluster.ClientCert("system:node:"+nodeName, "system:nodes")
	if err != nil {
		n.t.Fatal(err)
	}
	n.write("/usr/bin/kubelet", "#!/bin/sh\nexec /usr/bin/kubernetes kubelet \"$@\"\n")
	n.write("/usr/lib/test-units/kubelet.service", kubeletUnit)
	n.write("/usr/lib/test-units/kubelet.service.d/10-kubeadm.conf", kubeadmDropIn)
	n.write("/var/lib/kubelet/config.yaml", kubeletConfig)
	n.write("/var/lib/kubelet/kubeadm-flags.env", fmt.Sprintf("KUBELET_KUBEADM_ARGS=\"--node-ip=%s --hostname-override=%s --config-dir=/etc/kubernetes/kubelet.conf.d\"\n",
		machine.IP, strings.ToUpper(nodeName))) // kubelet makes it small again
	n.write("/etc/kubernetes/kubelet.conf.d/10-cri.conf", kubeletPart)
	pair := string(n.read(certFile)) + string(n.read(keyFile))
	n.write("/var/lib/kubelet/pki/kubelet-client-2026-01-01-00-00-00.pem", pair)
	if err := os.Symlink("/var/lib/kubelet/pki/kubelet-client-2026-01-01-00-00-00.pem", n.Path("/var/lib/kubelet/pki/kubelet-client-current.pem")); err != nil {
		n.t.Fatal(err)
	}
	ca := n.read(n.cluster.CAFile())
	n.write("/etc/kubernetes/pki/ca.crt", string(ca))
	_ = os.MkdirAll(n.Path("/etc/kubernetes/manifests"), 0o755)
	n.write("/etc/kubernetes/kubelet.conf", fmt.Sprintf(`apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: %s
    server: https://%s
    tls-server-name: kubernetes
  name: default-cluster
contexts:
- context:
    cluster: default-cluster
    namespace: default
    user: default-auth
  name: default-context
current-context: default-context
kind: Config
users:
- name: default-auth
  user:
    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem
    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem
`, base64.StdEncoding.EncodeToString(ca), n.link.Addr()))
	if err := os.Chmod(n.Path("/etc/kubernetes/kubelet.conf"), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// reachApiserver makes the wire's end on the host a way to the apiserver.
func (n *node) reachApiserver() {
	n.t.Helper()
	var err error
	if n.link, err = link.Listen(n.hostAddress(), strings.TrimPrefix(n.cluster.ServerURL(), "https://")); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = n.link.Close() })
}

func (n *node) hostAddress() string {
	n.t.Helper()
	port, err := freeport.Take()
	if err != nil {
		n.t.Fatal(err)
	}
	return net.JoinHostPort(machine.HostIP, strconv.Itoa(port))
}

// serveImages has pause and the test app.
func (n *node) serveImages() *images.Registry {
	n.t.Helper()
	folder := n.t.TempDir()
	build := exec.CommandContext(n.t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", folder+"/", "./images/pause", "./images/app")
	build.Dir = "../cluster"
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		n.t.Fatalf("build the images: %v\n%s", err, out)
	}
	registry, err := images.Serve(n.hostAddress())
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = registry.Close() })
	for name, tag := range map[string]string{"pause": "1", "app": "v1"} {
		program, err := images.NewProgram(filepath.Join(folder, name), name)
		if err != nil {
			n.t.Fatal(err)
		}
		image, err := program.Build(nil, []string{"APP_VERSION=" + tag})
		if err == nil {
			err = registry.Push(n.t.Context(), name, tag, image)
		}
		if err != nil {
			n.t.Fatal(err)
		}
	}
	n.image = registry.Reference("app", "v1")
	return registry
}

func (n *node) read(path string) []byte {
	n.t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		n.t.Fatal(err)
	}
	return content
}

func (n *node) write(path, content string) {
	n.t.Helper()
	mode := os.FileMode(0o644)
	if strings.HasPrefix(content, "#!") {
		mode = 0o755
	}
	if err := n.Write(path, content, mode); err != nil {
		n.t.Fatal(err)
	}
}

// program is one of the product's.
func (n *node) program(name string) []byte {
	n.t.Helper()
	folder, err := hubproc.Programs("../..")
	if err != nil {
		n.t.Fatal(err)
	}
	return n.read(filepath.Join(folder, name))
}

func (n *node) systemctl(args ...string) string {
	n.t.Helper()
	out, err := n.Run(n.t.Context(), append([]string{"systemctl"}, args...)...)
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// build is the hub, or another build of it: a different file
// that does the same.
func (n *node) build(another bool) (path string) {
	n.t.Helper()
	binary := n.program("edgehub")
	if another {
		n.version++
		binary = append(bytes.Clone(binary), byte(n.version))
	}
	path = fmt.Sprintf("/root/edgehub-%d", n.version)
	if err := n.Write(path, "", 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(n.Path(path), binary, 0o755); err != nil {
		n.t.Fatal(err)
	}
	return path
}

// edgehub runs the hub's program in the machine, and returns how that went.
func (n *node) edgehub(path string, args ...string) (string, error) {
	n.t.Helper()
	began := time.Now()
	out, err := n.Run(n.t.Context(), append([]string{path}, args...)...)
	n.t.Logf("edgehub %s: %v after %v\n%s", strings.Join(args, " "), err, time.Since(began).Round(time.Millisecond), out)
	return out, err
}

func (n *node) must(path string, args ...string) string {
	n.t.Helper()
	out, err := n.edgehub(path, args...)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

func (n *node) awaitReady() {
	n.t.Helper()
	poll.Check(n.t.Context(), n.t, "the node is Ready", func(ctx context.Context) error {
		object, err := n.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range object.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("conditions: %v", object.Status.Conditions)
	})
}
