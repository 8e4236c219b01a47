package hub

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/proxy"
)

// reloadInterval is how often credentials are looked at. kubelet rotates its
// certificate weeks before the old one ends, so seconds do not matter; reading
// four small files does not either.
const reloadInterval = 10 * time.Second

// credentials keeps the hub's view of the node's credentials current. A file
// that cannot be read, in the middle of a rotation for instance, changes
// nothing: the last good contents stay in use.
type credentials struct {
	kubeconfig   string
	clientCAFile string // or empty: the kubeconfig's CA
	upstream     *proxy.Upstream
	log          *slog.Logger
	expiry       prometheus.Gauge
	server       *url.URL // of the kubeconfig at the start
	serverInUse  bool     // false where --server-addr names others

	clientCAs atomic.Pointer[x509.CertPool]
	loaded    [32]byte
	failing   bool // the last reload failed, and was logged
}

// start takes up id, the first contents.
func (c *credentials) start(id *identity) error {
	if err := c.loadClientCAs(id); err != nil {
		return err
	}
	c.loaded = id.digest
	c.noteExpiry(id)
	return nil
}

// run reloads until ctx ends.
func (c *credentials) run(ctx context.Context) error {
	tick := time.NewTicker(reloadInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			c.reload()
		}
	}
}

func (c *credentials) reload() {
	id, err := loadIdentity(c.kubeconfig)
	if err == nil {
		err = c.loadClientCAs(id)
	}
	if err != nil {
		if !c.failing {
			c.log.Error("node credentials cannot be read again; the ones in use stay", "err", err)
		}
		c.failing = true
		return
	}
	if c.failing {
		c.log.Info("node credentials can be read again")
	}
	c.failing = false
	if id.digest == c.loaded {
		return
	}
	if id.server.Host != c.server.Host && c.serverInUse {
		c.log.Warn("the kubeconfig names another apiserver; restart the hub to use it", "server", id.server.Host, "in-use", c.server.Host)
	}
	c.upstream.SetCredentials(id.creds)
	c.loaded = id.digest
	c.noteExpiry(id)
	c.log.Info("node credentials changed and are in use", "kubeconfig", c.kubeconfig)
}

// loadClientCAs sets whose client certificates the TLS port accepts.
func (c *credentials) loadClientCAs(id *identity) error {
	pem, source := id.caPEM, c.kubeconfig
	if c.clientCAFile != "" {
		var err error
		if pem, err = os.ReadFile(c.clientCAFile); err != nil {
			return fmt.Errorf("--client-ca-file: %w", err)
		}
		source = c.clientCAFile
	}
	pool := x509.NewCertPool() // with no CA, no certificate is accepted
	if len(pem) > 0 && !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("client CAs: %s holds no PEM certificate", source)
	}
	c.clientCAs.Store(pool)
	return nil
}

func (c *credentials) noteExpiry(id *identity) {
	if id.creds.Certificate == nil {
		return
	}
	end := id.creds.Certificate.Leaf.NotAfter
	c.expiry.Set(float64(end.Unix()))
	if time.Now().After(end) {
		c.log.Warn("the node's client certificate has expired; the apiserver will refuse the node until kubelet has renewed it", "expired", end)
	}
}
