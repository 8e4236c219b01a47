package hub

import (
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"

	"github.com/edgehub-io/edgehub/cache/transform"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/nodeca"
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

// transforms are those by which the node's pods get to use the hub.
func (p *podAccess) transforms() []transform.Transform {
	return []transform.Transform{
		transform.NewAPIServerService(p.config.PodAddresses, uint16(p.config.ProxySecurePort)),
		transform.NewRootCA(func() []byte { return p.ca }),
		transform.NewKubeProxy(fmt.Sprintf("https://%s", p.config.PodServers()[0])),
	}
}

// serverConfig is that of the ports at the addresses for pods.
func (p *podAccess) serverConfig() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{*p.cert},
		ClientAuth:   tls.RequestClientCert,
	}
}
