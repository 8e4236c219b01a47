package hub

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/cache/transform"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/nodeca"
	"github.com/edgehub-io/edgehub/proxy/authn"
)

// podAccess is how the node's pods find and trust the hub.
type podAccess struct {
	config *config.Config
	ca     []byte // PEM
	cert   *tls.Certificate
}

// openPodAccess reads or creates the node's CA under --root-dir.
func openPodAccess(c *config.Config) (*podAccess, error) {
	names := nodeca.Names{DNS: []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", c.NodeName,
	}}
	for _, address := range c.PodAddresses {
		names.Addresses = append(names.Addresses, net.IP(address.AsSlice()))
	}
	ca, err := nodeca.Open(filepath.Join(c.PKIDir(), "pods-ca.pem"), names)
	if err != nil {
		return nil, err
	}
	p := &podAccess{config: c}
	if p.cert, err = ca.Issue(); err != nil {
		return nil, err
	}
	p.ca, err = ca.Certificate()
	return p, err
}

// transform returns what answers requests of the node's clients.
func (p *podAccess) transform(answers http.RoundTripper, r prometheus.Registerer, log *slog.Logger) http.RoundTripper {
	port := uint16(p.config.ProxySecurePort)
	var active []transform.Transform
	for _, t := range []transform.Transform{
		transform.NewAPIServerService(p.config.PodAddresses, port),
		transform.NewRootCA(func() []byte { return p.ca }),
		transform.NewKubeProxy(fmt.Sprintf("https://%s", p.config.PodServers()[0])),
	} {
		if slices.Contains(p.config.Transforms, t.Name) {
			active = append(active, t)
		}
	}
	return transform.New(answers, transform.Options{
		IsNode:     func(ctx context.Context) bool { return authn.IdentityOf(ctx) == authn.Node },
		Transforms: active, Registerer: r, Logger: log,
	})
}

// serverConfig is that of the ports at the addresses for pods.
func (p *podAccess) serverConfig() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{*p.cert},
		ClientAuth:   tls.RequestClientCert,
	}
}
