package cache

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/edgehub-io/edgehub/test/cluster/link"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// hub is one node's hub, and its clients.
type hub struct {
	*hubproc.Hub
	t    *testing.T
	name string // of the node
	user string // of the node, as the apiserver knows it
	link *link.Link
	log  string
	node *client // on the plain port, where everybody is the node
	api  *client // the node's HTTP API

	certFile, keyFile string
}

// hubOption changes a hub before it starts.
type hubOption func(*hubproc.Options)

// inDir makes a hub keep its files in a given folder.
func inDir(root string) hubOption { return func(o *hubproc.Options) { o.Root = root } }

// withArgs gives a hub further flags.
func withArgs(args ...string) hubOption {
	return func(o *hubproc.Options) { o.Args = append(o.Args, args...) }
}

// under runs a hub by way of another program, which has to become the hub.
func under(program ...string) hubOption { return func(o *hubproc.Options) { o.Wrap = program } }

// newHub starts a hub before the real apiserver. The node may do everything there.
func newHub(t *testing.T, options ...hubOption) *hub {
	t.Helper()
	return newHubIn(t, env, options...)
}

func newHubIn(t *testing.T, e environment, options ...hubOption) *hub {
	t.Helper()
	h := makeHub(t, e.ServerURL(), options...)
	h.IdentifyAs(e.Cluster, "system:masters") // it may read all that a test makes
	var err error
	if h.certFile, h.keyFile, err = e.ClientCert(h.User, "system:nodes"); err != nil {
		t.Fatal(err)
	}
	h.start()
	return h
}

func makeHub(t *testing.T, server string, options ...hubOption) *hub {
	t.Helper()
	o := hubproc.Options{Binary: env.hubBin, Server: server}
	for _, change := range options {
		change(&o)
	}
	e := hubproc.New(t, o)
	h := &hub{Hub: e, t: t, name: e.Name, user: e.User, link: e.Link, log: e.Log}
	h.node, h.api = newClient(e.Plain, nil, false), newClient(e.API, nil, false)
	t.Cleanup(func() { h.node.close(); h.api.close() })
	return h
}

// start starts the hub and returns when it serves, whether the cloud is there or not.
func (h *hub) start() {
	h.t.Helper()
	h.Start()
}

// stop stops the hub in order: what it knows is on disk then.
func (h *hub) stop() {
	h.t.Helper()
	h.Stop()
	h.node.close() // idle connections to a process that is gone
	h.api.close()
}

// kill ends the hub at once, as a crash would.
func (h *hub) kill() {
	h.t.Helper()
	h.Kill()
	h.node.close()
	h.api.close()
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
	return h.secureOver(certs, true)
}

func (h *hub) secureOver(certs []tls.Certificate, http2 bool) *client {
	h.t.Helper()
	config := &tls.Config{RootCAs: rawclient.Roots(h.t, filepath.Join(h.Root, "pki", "serving.crt")), Certificates: certs}
	c := newClient("https://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(h.SecurePort)), config, http2)
	h.t.Cleanup(c.close)
	return c
}
