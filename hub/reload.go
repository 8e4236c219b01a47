package hub

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/hub/enroll"
	"github.com/edgehub-io/edgehub/hub/kubeconfig"
	"github.com/edgehub-io/edgehub/proxy"
)

const (
	// reloadInterval is how often credentials are looked at. kubelet rotates its
	// certificate weeks before the old one ends, so seconds do not matter; reading
	// four small files does not either.
	reloadInterval = 10 * time.Second
	// urgentInterval is how often while the node is not let in with those it has.
	urgentInterval = time.Second
)

// credentials keeps the hub's view of the node's credentials current. A file
// that cannot be read, in the middle of a rotation for instance, changes
// nothing: the last good contents stay in use.
type credentials struct {
	load         func() (*kubeconfig.Identity, error)
	source       string        // where from, for people
	own          *enroll.Store // nil: the certificate is somebody else's
	clientCAFile string        // or empty: the kubeconfig's CA
	upstream     *proxy.Upstream
	log          *slog.Logger
	expiry       prometheus.Gauge
	server       *url.URL // of the kubeconfig at the start
	serverInUse  bool     // false where --server-addr names others

	clientCAs atomic.Pointer[x509.CertPool]
	missing   atomic.Bool               // there are none yet
	ends      atomic.Pointer[time.Time] // of the certificate; nil: there is none

	reloading sync.Mutex // guards what follows
	loaded    [32]byte
	failing   bool // the last reload failed, and was logged
}

// start takes up id, the first contents.
func (c *credentials) start(id *kubeconfig.Identity) error {
	if err := c.loadClientCAs(id); err != nil {
		return err
	}
	c.loaded = id.Digest
	c.note(id)
	return nil
}

// run reloads until ctx ends.
func (c *credentials) run(ctx context.Context) error {
	tick := time.NewTicker(urgentInterval)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if now.Sub(last) >= reloadInterval || c.upstream.State().Refused {
				c.reload()
				last = now
			}
		}
	}
}

// reload looks whether there are other credentials.
func (c *credentials) reload() {
	c.reloading.Lock()
	defer c.reloading.Unlock()
	id, err := c.load()
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
	if id.Digest == c.loaded {
		return
	}
	if id.Server.Host != c.server.Host && c.serverInUse {
		c.log.Warn("the kubeconfig names another apiserver; restart the hub to use it", "server", id.Server.Host, "in-use", c.server.Host)
	}
	c.note(id) // before requests are let through: who asks then is to be told the new state
	c.upstream.SetCredentials(id.Creds)
	c.loaded = id.Digest
	c.log.Info("node credentials changed and are in use", "from", c.source)
}

// loadClientCAs sets whose client certificates the TLS port accepts.
func (c *credentials) loadClientCAs(id *kubeconfig.Identity) error {
	pem, source := id.CAPEM, c.source
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

// note notes what the credentials are.
func (c *credentials) note(id *kubeconfig.Identity) {
	c.missing.Store(id.Creds.Missing != nil)
	if id.Creds.Certificate == nil {
		c.ends.Store(nil)
		c.expiry.Set(0)
		return
	}
	end := id.Creds.Certificate.Leaf.NotAfter
	c.ends.Store(&end)
	c.expiry.Set(float64(end.Unix()))
	if time.Now().After(end) {
		c.log.Warn("the node's client certificate has expired; the apiserver will refuse the node until there is another one", "expired", end, "from", c.source)
	}
}

// said describes the credentials, or is empty where there is no certificate.
func (c *credentials) said() string {
	end := c.ends.Load()
	switch {
	case end == nil:
		return ""
	case time.Now().After(*end):
		return "the node's certificate, which expired " + rfc3339(*end) + ","
	}
	return "the node's certificate, good until " + rfc3339(*end) + ","
}

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }
