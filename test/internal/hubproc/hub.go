package hubproc

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/cluster/link"
	"github.com/edgehub-io/edgehub/test/internal/freeport"
)

// patience is how long a hub may take to serve, or to end. It is long since the
// machine may be busy, and only spent when something is wrong.
const patience = 2 * time.Minute

// Options describe which hub to run.
type Options struct {
	// Binary is the hub's. Required.
	Binary string
	// Server is the URL of its apiserver. Required.
	Server string
	// Others are the URLs of further apiservers, each behind a link of its own.
	Others []string
	// Root is its --root-dir; empty: a fresh folder.
	Root string
	// Args are further flags; one that is given twice counts as given here.
	Args []string
	// Offline has the link refuse until it is changed.
	Offline bool
	// Wrap is a program that runs the hub, and its arguments. It has to become the hub.
	Wrap []string
}

// Hub is one node's hub: a process, the folder that it keeps its files in, and the
// link between it and the cloud. It may be stopped, killed and started again.
type Hub struct {
	Name string // of the node
	User string // of the node, as the apiserver knows it
	Root string // --root-dir
	Link *link.Link
	// Others are the links to Options.Others, in their order.
	Others []*link.Link
	// Plain is the URL of the port where everybody is the node, and API that of the
	// node's HTTP API.
	Plain, API string
	SecurePort int
	// Log is the file that has what it logged in all its lives.
	Log string

	t          testing.TB
	binary     string
	args       []string
	wrap       []string
	kubeconfig string
	process    *exec.Cmd
	exited     <-chan struct{} // closed once process has been waited for
}

// New prepares a hub for a node with a name like no other. It needs an
// identity, by Identify or IdentifyAs, and then Start.
func New(t testing.TB, o Options) *Hub {
	t.Helper()
	name := fmt.Sprintf("n%08x", rand.Uint32())
	h := &Hub{t: t, Name: name, User: "system:node:" + name, Root: o.Root, Log: filepath.Join(t.TempDir(), "hub.log"), binary: o.Binary, wrap: o.Wrap}
	if h.Root == "" {
		h.Root = t.TempDir()
	}
	h.Link = newLink(t, o.Server, o.Offline)
	servers := "https://" + h.Link.Addr()
	for _, other := range o.Others {
		l := newLink(t, other, o.Offline)
		h.Others = append(h.Others, l)
		servers += ",https://" + l.Addr()
	}
	apiPort, plainPort := freeport.On127(t), freeport.On127(t)
	h.API, h.Plain, h.SecurePort = "http://"+address(apiPort), "http://"+address(plainPort), freeport.On127(t)
	h.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	h.args = append([]string{
		"--node-name=" + name, "--root-dir=" + h.Root, "--kubeconfig=" + h.kubeconfig, "--server-addr=" + servers,
		fmt.Sprintf("--serve-port=%d", apiPort), fmt.Sprintf("--proxy-port=%d", plainPort), fmt.Sprintf("--proxy-secure-port=%d", h.SecurePort),
		"--shutdown-grace-period=1s", "--reconnect-jitter=200ms", "--log-level=debug",
	}, o.Args...)
	t.Cleanup(h.End)
	return h
}

// AddArgs adds flags from the next Start on. One that is given twice counts as given last.
func (h *Hub) AddArgs(args ...string) { h.args = append(h.args, args...) }

// newLink makes the link to one apiserver.
func newLink(t testing.TB, server string, offline bool) *link.Link {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	l, err := link.Listen(address(freeport.On127(t)), u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if offline {
		if err := l.Refuse(); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// Identify gives the hub the credentials of its node.
func (h *Hub) Identify(c *clientcmdapi.Cluster, a *clientcmdapi.AuthInfo) {
	h.t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"], config.AuthInfos["u"] = c, a
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*config, h.kubeconfig); err != nil {
		h.t.Fatal(err)
	}
}

// IdentifyAs gives the hub a certificate for its node in a group, "system:nodes" for
// one, and returns the paths of certificate and key.
func (h *Hub) IdentifyAs(c *cluster.Cluster, group string) (certFile, keyFile string) {
	h.t.Helper()
	certFile, keyFile, err := c.ClientCert(h.User, group)
	if err != nil {
		h.t.Fatal(err)
	}
	h.Identify(
		&clientcmdapi.Cluster{Server: c.ServerURL(), CertificateAuthority: c.CAFile()},
		&clientcmdapi.AuthInfo{ClientCertificate: certFile, ClientKey: keyFile})
	return certFile, keyFile
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Pid is the hub's process ID, to read /proc.
func (h *Hub) Pid() int { return h.process.Process.Pid }
