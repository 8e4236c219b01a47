package cache

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/edgehub-io/edgehub/test/cluster/link"
	"github.com/edgehub-io/edgehub/test/freeport"
)

// hub is one node's hub: a process, the folder that it keeps its cache in, and the
// link between it and the cloud. It may be stopped, killed and started again.
type hub struct {
	name string // of the node
	user string // of the node, as the apiserver knows it
	root string // --root-dir
	link *link.Link
	node *client // on the plain port, where everybody is the node
	api  *client // the node's HTTP API

	t                 *testing.T
	args              []string
	kubeconfig        string
	securePort        int
	certFile, keyFile string
	log               string
	wrap              []string // a program that runs the hub, and its arguments
	process           *exec.Cmd
	exited            chan struct{}
}

// hubOption changes a hub before it starts.
type hubOption func(*hub)

// inDir makes a hub keep its files in a given folder.
func inDir(root string) hubOption { return func(h *hub) { h.root = root } }

// withArgs gives a hub further flags.
func withArgs(args ...string) hubOption {
	return func(h *hub) { h.args = append(h.args, args...) }
}

// under runs a hub by way of another program, which has to become the hub.
func under(program ...string) hubOption { return func(h *hub) { h.wrap = program } }

// newHub starts a hub before the real apiserver. The node may do everything there.
func newHub(t *testing.T, options ...hubOption) *hub {
	t.Helper()
	return newHubIn(t, env, options...)
}

func newHubIn(t *testing.T, e environment, options ...hubOption) *hub {
	t.Helper()
	h := makeHub(t, e.ServerURL(), options...)
	var err error
	if h.certFile, h.keyFile, err = e.ClientCert(h.user, "system:masters"); err != nil {
		t.Fatal(err)
	}
	h.writeKubeconfig(
		&clientcmdapi.Cluster{Server: e.ServerURL(), CertificateAuthority: e.CAFile()},
		&clientcmdapi.AuthInfo{ClientCertificate: h.certFile, ClientKey: h.keyFile})
	h.start()
	return h
}

// newHubBefore starts a hub before a scripted apiserver.
func newHubBefore(t *testing.T, f *fake, options ...hubOption) *hub {
	t.Helper()
	h := makeHub(t, f.server.URL, options...)
	h.writeKubeconfig(
		&clientcmdapi.Cluster{Server: f.server.URL, CertificateAuthorityData: f.caPEM()},
		&clientcmdapi.AuthInfo{Token: "node"})
	h.start()
	return h
}

func makeHub(t *testing.T, server string, options ...hubOption) *hub {
	t.Helper()
	name := fmt.Sprintf("n%08x", rand.Uint32())
	h := &hub{t: t, name: name, user: "system:node:" + name, root: t.TempDir(), log: filepath.Join(t.TempDir(), "hub.log")}
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	if h.link, err = link.Listen(address(freeport.On127(t)), u.Host); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.link.Close() })
	for _, o := range options {
		o(h)
	}
	apiPort, plainPort := freeport.On127(t), freeport.On127(t)
	h.securePort = freeport.On127(t)
	h.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	h.args = append([]string{
		"--node-name=" + name, "--root-dir=" + h.root, "--kubeconfig=" + h.kubeconfig, "--server-addr=https://" + h.link.Addr(),
		fmt.Sprintf("--serve-port=%d", apiPort), fmt.Sprintf("--proxy-port=%d", plainPort), fmt.Sprintf("--proxy-secure-port=%d", h.securePort),
		"--shutdown-grace-period=1s", "--reconnect-jitter=200ms", "--log-level=debug",
	}, h.args...)
	h.node = newClient("http://"+address(plainPort), nil, false)
	h.api = newClient("http://"+address(apiPort), nil, false)
	t.Cleanup(func() { h.node.close(); h.api.close() })
	t.Cleanup(h.end)
	return h
}

func (h *hub) writeKubeconfig(c *clientcmdapi.Cluster, a *clientcmdapi.AuthInfo) {
	h.t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"], config.AuthInfos["u"] = c, a
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*config, h.kubeconfig); err != nil {
		h.t.Fatal(err)
	}
}

// start starts the hub and returns when it serves, whether the cloud is there or not.
func (h *hub) start() {
	h.t.Helper()
	log, err := os.OpenFile(h.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		h.t.Fatal(err)
	}
	defer log.Close() // the child has its own copy
	command := append(append(h.wrap[:len(h.wrap):len(h.wrap)], env.hubBin), h.args...)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	h.process, h.exited = cmd, exited
	eventually(h.t, "the hub serves", func() bool {
		select {
		case <-exited:
			h.t.Fatalf("the hub has ended: %v", cmd.ProcessState)
		default:
		}
		return h.api.try(h.t.Context(), request{path: "/v1/healthz"}).status == http.StatusOK
	})
}

// stop stops the hub in order: what it knows is on disk then.
func (h *hub) stop() {
	h.t.Helper()
	h.signal(syscall.SIGTERM)
	if code := h.process.ProcessState.ExitCode(); code != 0 {
		h.t.Errorf("the hub ended with %v", h.process.ProcessState)
	}
}

// kill ends the hub at once, as a crash would.
func (h *hub) kill() {
	h.t.Helper()
	h.signal(syscall.SIGKILL)
}

func (h *hub) signal(s syscall.Signal) {
	h.t.Helper()
	if err := h.process.Process.Signal(s); err != nil {
		h.t.Fatalf("%v to the hub: %v", s, err)
	}
	select {
	case <-h.exited:
	case <-time.After(patience):
		_ = h.process.Process.Kill()
		<-h.exited
		h.t.Fatalf("the hub did not end after %v", s)
	}
	h.node.close() // idle connections to a process that is gone
	h.api.close()
}

// end ends the hub with the test, and shows what it said if that has failed.
func (h *hub) end() {
	if h.process != nil {
		_ = h.process.Process.Kill()
		<-h.exited
	}
	text, err := os.ReadFile(h.log)
	if err != nil {
		return
	}
	if bytes.Contains(text, []byte("DATA RACE")) || bytes.Contains(text, []byte("panic:")) {
		h.t.Errorf("the hub has a data race or a panic:\n%s", text)
		return
	}
	if h.t.Failed() {
		lines := strings.SplitAfter(string(text), "\n")
		const enough = 60
		h.t.Logf("the end of the log of hub %s:\n%s", h.name, strings.Join(lines[max(0, len(lines)-enough):], ""))
	}
}

// as is a client on the TLS port, with a token.
func (h *hub) as(token string) *client {
	h.t.Helper()
	c := h.secure(nil)
	c.token = token
	return c
}

// withCert is a client on the TLS port, with the node's certificate.
func (h *hub) withCert() *client {
	h.t.Helper()
	pair, err := tls.LoadX509KeyPair(h.certFile, h.keyFile)
	if err != nil {
		h.t.Fatal(err)
	}
	return h.secure([]tls.Certificate{pair})
}

func (h *hub) secure(certs []tls.Certificate) *client {
	h.t.Helper()
	config := &tls.Config{RootCAs: pool(h.t, filepath.Join(h.root, "pki", "serving.crt")), Certificates: certs}
	c := newClient("https://"+address(h.securePort), config, true)
	h.t.Cleanup(c.close)
	return c
}

// cacheDir is where the hub keeps its cache.
func (h *hub) cacheDir() string { return filepath.Join(h.root, "cache") }
