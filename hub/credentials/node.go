package credentials

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/hub/enroll"
	"github.com/edgehub-io/edgehub/hub/kubeconfig"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

const (
	// reloadInterval is the interval of reading the files. Seconds do not matter, since kubelet
	// rotates its certificate weeks before the old one expires, and four small files cost little.
	reloadInterval = 10 * time.Second
	// urgentInterval is the interval while the apiservers refuse the present credentials.
	urgentInterval = time.Second
)

// Node keeps the node's credentials current. If a file cannot be read, for example during a
// rotation, the last good contents stay in use.
type Node struct {
	source     *Source
	upstream   *upstream.Upstream
	enrollment *enroll.Enrollment // renews the node's certificate; nil: kubelet does that
	log        *slog.Logger
	expiry     prometheus.Gauge
	server     *url.URL // in the kubeconfig at the start

	clientCAs atomic.Pointer[x509.CertPool]
	serverCAs atomic.Pointer[[]byte]    // PEM
	missing   atomic.Bool               // there are no credentials yet
	expires   atomic.Pointer[time.Time] // when the certificate expires; nil: there is none

	reloading sync.Mutex // guards what follows
	loaded    [32]byte
	failing   bool // the last reload failed, and was logged
}

// New returns a Node for id, the identity that source has loaded and upstream uses. With --bootstrap-file it obtains
// a certificate for the hub: hub sends the requests for that through the hub itself. The metrics are registered on r.
func New(source *Source, id *kubeconfig.Identity, upstream *upstream.Upstream, hub *rest.Config, r prometheus.Registerer, log *slog.Logger) (*Node, error) {
	enrollment, err := source.enroll(upstream, hub, r, log)
	if err != nil {
		return nil, err
	}
	n := &Node{source: source, upstream: upstream, enrollment: enrollment, log: log, server: id.Server, expiry: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "edgehub_client_certificate_expiration_timestamp_seconds",
		Help: "When the node's client certificate expires, as Unix time; 0 if the node has none.",
	})}
	r.MustRegister(n.expiry)
	if err := n.loadClientCAs(id); err != nil {
		return nil, err
	}
	n.loaded = id.Digest
	n.record(id)
	return n, nil
}

// Run reloads the credentials, and renews the hub's certificate, until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if n.enrollment != nil {
		g.Go(func() error { return n.enrollment.Run(ctx, n.Reload) })
	}
	g.Go(func() error { n.follow(ctx); return nil })
	return g.Wait()
}

// follow reloads until ctx ends.
func (n *Node) follow(ctx context.Context) {
	tick := time.NewTicker(urgentInterval)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if now.Sub(last) >= reloadInterval || n.upstream.State().Refused {
				n.Reload()
				last = now
			}
		}
	}
}

// Reload reads the credentials, and takes them into use if they have changed.
func (n *Node) Reload() {
	n.reloading.Lock()
	defer n.reloading.Unlock()
	id, err := n.source.Load()
	if err == nil {
		err = n.loadClientCAs(id)
	}
	if err != nil {
		if !n.failing {
			n.log.Error("node credentials cannot be read again; the ones in use stay", "err", err)
		}
		n.failing = true
		return
	}
	if n.failing {
		n.log.Info("node credentials can be read again")
	}
	n.failing = false
	if id.Digest == n.loaded {
		return
	}
	if id.Server.Host != n.server.Host && len(n.source.config.Servers) == 0 {
		n.log.Warn("the kubeconfig names another apiserver; restart the hub to use it", "server", id.Server.Host, "in-use", n.server.Host)
	}
	n.record(id) // first, since SetCredentials lets requests through, which read the new state
	n.upstream.SetCredentials(id.Creds)
	n.loaded = id.Digest
	n.log.Info("node credentials changed and are in use", "from", n.source.File())
}

// ClientCAs returns the CAs of the client certificates that the TLS port accepts.
func (n *Node) ClientCAs() *x509.CertPool { return n.clientCAs.Load() }

// ServerCAs returns the CAs by which the hub verifies the apiserver, in PEM; empty: the system's.
func (n *Node) ServerCAs() []byte { return *n.serverCAs.Load() }

// loadClientCAs sets the CAs of the client certificates that the TLS port accepts.
func (n *Node) loadClientCAs(id *kubeconfig.Identity) error {
	pem, source := id.CAPEM, n.source.File()
	if n.source.config.ClientCAFile != "" {
		var err error
		if pem, err = os.ReadFile(n.source.config.ClientCAFile); err != nil {
			return fmt.Errorf("--client-ca-file: %w", err)
		}
		source = n.source.config.ClientCAFile
	}
	pool := x509.NewCertPool() // with no CA, no certificate is accepted
	if len(pem) > 0 && !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("client CAs: %s holds no PEM certificate", source)
	}
	n.clientCAs.Store(pool)
	return nil
}

// record stores the state of the credentials for messages, metrics and pods.
func (n *Node) record(id *kubeconfig.Identity) {
	n.serverCAs.Store(&id.CAPEM)
	n.missing.Store(id.Creds.Missing != nil)
	if id.Creds.Certificate == nil {
		n.expires.Store(nil)
		n.expiry.Set(0)
		return
	}
	end := id.Creds.Certificate.Leaf.NotAfter
	n.expires.Store(&end)
	n.expiry.Set(float64(end.Unix()))
	if time.Now().After(end) {
		n.log.Warn("the node's client certificate has expired; the apiserver will refuse the node until there is another one", "expired", end, "from", n.source.File())
	}
}

// Missing returns an error while the hub waits for its first certificate, and nil otherwise.
func (n *Node) Missing() error {
	if !n.missing.Load() {
		return nil
	}
	if !n.upstream.State().Up {
		return errors.New("the node has no certificate yet, and no apiserver can be reached to ask for one")
	}
	if problem := n.enrollment.Problem(); problem != nil {
		return fmt.Errorf("the node has no certificate yet: %w", problem)
	}
	return fmt.Errorf("the node has no certificate yet; one is being asked for with --bootstrap-file %s", n.source.config.BootstrapFile)
}

// Refused returns a message that the apiservers refuse the node's credentials, and what to do.
func (n *Node) Refused(state upstream.State) string {
	todo := fmt.Sprintf("renew it, or put another into --kubeconfig %s, which is looked at every second", n.source.config.Kubeconfig)
	if n.source.config.BootstrapFile != "" {
		todo = "another one is asked for with --bootstrap-file " + n.source.config.BootstrapFile
		if problem := n.enrollment.Problem(); problem != nil {
			todo = problem.Error()
		}
	}
	return fmt.Sprintf("%s is refused by the apiserver since %s, and the node is served from the cache: %s",
		cmp.Or(n.describe(), "what the node is known by"), rfc3339(state.RefusedSince), todo)
}

// Expires returns when the node's client certificate does, and false if it has none.
func (n *Node) Expires() (time.Time, bool) {
	end := n.expires.Load()
	if end == nil {
		return time.Time{}, false
	}
	return *end, true
}

// describe returns a description of the certificate, or "" if there is none.
func (n *Node) describe() string {
	end := n.expires.Load()
	switch {
	case end == nil:
		return ""
	case time.Now().After(*end):
		return "the node's certificate, which expired " + rfc3339(*end) + ","
	}
	return "the node's certificate, good until " + rfc3339(*end) + ","
}

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }
