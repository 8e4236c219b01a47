package credentials

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/enroll"
	"github.com/edgehub-io/edgehub/hub/kubeconfig"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// Source reads the node's identity: from --kubeconfig, or from the hub's own certificate and the
// bootstrap file.
type Source struct {
	config *config.Config
	own    *enroll.Store // nil: --kubeconfig is used
}

// Open returns the Source for c. With --bootstrap-file, it opens the store of the hub's certificate.
func Open(c *config.Config, log *slog.Logger) (*Source, error) {
	if c.BootstrapFile == "" {
		return &Source{config: c}, nil
	}
	own, err := enroll.Open(c.PKIDir(), log)
	if err != nil {
		return nil, fmt.Errorf("--root-dir %s: %w", c.RootDir, err)
	}
	return &Source{config: c, own: own}, nil
}

// enroll returns what obtains the hub's certificate, or nil without --bootstrap-file.
func (s *Source) enroll(cloud *upstream.Upstream, hub *rest.Config, r prometheus.Registerer, log *slog.Logger) (*enroll.Enrollment, error) {
	if s.own == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	return enroll.New(s.own, enroll.Options{
		NodeName: s.config.NodeName, BootstrapFile: s.config.BootstrapFile, ReadBootstrap: s.readBootstrap,
		Hub: hub, Cloud: cloud, Registerer: r, Logger: log,
	})
}

// Load reads the node's identity. Its error names the flag.
func (s *Source) Load() (*kubeconfig.Identity, error) {
	if s.own == nil {
		id, err := kubeconfig.Load(s.config.Kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig: %w", err)
		}
		return id, nil
	}
	id, err := kubeconfig.Load(s.own.Kubeconfig())
	id, err = s.withBootstrap(id, err)
	if err != nil {
		return nil, fmt.Errorf("--bootstrap-file: %w", err)
	}
	return id, nil
}

// withBootstrap combines the hub's certificate, if it has one, with the apiserver and CA in the
// bootstrap file, if that exists: an operator may replace the file when they change. Without a
// certificate there are no credentials: those in the bootstrap file are only for requesting one.
func (s *Source) withBootstrap(own *kubeconfig.Identity, ownErr error) (*kubeconfig.Identity, error) {
	bootstrap, err := kubeconfig.Load(s.config.BootstrapFile)
	switch {
	case ownErr != nil && !errors.Is(ownErr, fs.ErrNotExist):
		return nil, ownErr
	case ownErr != nil && err != nil:
		return nil, fmt.Errorf("%w, and there is no certificate from an earlier start in %s: put a bootstrap kubeconfig there", err, s.config.PKIDir())
	case err != nil:
		return own, nil //nolint:nilerr // the file may be removed once there is a certificate
	}
	id := *bootstrap
	creds := *bootstrap.Creds
	creds.Certificate, creds.Token = nil, ""
	known := ""
	if ownErr == nil {
		creds.Certificate, known = own.Creds.Certificate, string(own.Digest[:])
	} else {
		creds.Missing = &upstream.MissingError{Reason: "it has no certificate yet; one is asked for with --bootstrap-file"}
	}
	id.Creds = &creds
	// Another bootstrap token does not change the identity.
	id.Digest = sha256.Sum256(fmt.Appendf(nil, "%q %q %q %t %q", known, id.Server, creds.ServerName, creds.Insecure, id.CAPEM))
	return &id, nil
}

// File returns the path of the kubeconfig that names the apiserver.
func (s *Source) File() string { return cmp.Or(s.config.BootstrapFile, s.config.Kubeconfig) }

// readBootstrap returns the token in the bootstrap file, and its cluster.
func (s *Source) readBootstrap() (token string, cluster *clientcmdapi.Cluster, err error) {
	id, err := kubeconfig.Load(s.config.BootstrapFile)
	if err != nil {
		return "", nil, err
	}
	if id.Creds.Certificate != nil || id.Creds.Token == "" {
		return "", nil, fmt.Errorf("kubeconfig %s: it has a client certificate, and no bootstrap token", s.config.BootstrapFile)
	}
	cluster, err = kubeconfig.ClusterOf(s.config.BootstrapFile)
	return id.Creds.Token, cluster, err
}
