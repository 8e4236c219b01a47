package hub

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/enroll"
	"github.com/edgehub-io/edgehub/hub/kubeconfig"
	"github.com/edgehub-io/edgehub/proxy"
)

// identitySource returns how to read who the node is, and from where.
func identitySource(c *config.Config, log *slog.Logger) (load func() (*kubeconfig.Identity, error), own *enroll.Store, err error) {
	if c.BootstrapFile == "" {
		return func() (*kubeconfig.Identity, error) {
			id, err := kubeconfig.Load(c.Kubeconfig)
			if err != nil {
				return nil, fmt.Errorf("--kubeconfig: %w", err)
			}
			return id, nil
		}, nil, nil
	}
	if own, err = enroll.Open(c.PKIDir(), log); err != nil {
		return nil, nil, fmt.Errorf("--root-dir %s: %w", c.RootDir, err)
	}
	return func() (*kubeconfig.Identity, error) {
		id, err := kubeconfig.Load(own.Kubeconfig())
		id, err = withBootstrap(c, id, err)
		if err != nil {
			return nil, fmt.Errorf("--bootstrap-file: %w", err)
		}
		return id, nil
	}, own, nil
}

// withBootstrap takes from the bootstrap file, as long as it is there, which apiserver
// is meant and how it is known: an operator may replace it when that has changed. Where
// there is no certificate yet, there are no credentials: those in the bootstrap file
// are good for getting one and for nothing else.
func withBootstrap(c *config.Config, own *kubeconfig.Identity, ownErr error) (*kubeconfig.Identity, error) {
	bootstrap, err := kubeconfig.Load(c.BootstrapFile)
	switch {
	case ownErr != nil && !errors.Is(ownErr, fs.ErrNotExist):
		return nil, ownErr
	case ownErr != nil && err != nil:
		return nil, fmt.Errorf("%w, and there is no certificate from an earlier start in %s: put a bootstrap kubeconfig there", err, c.PKIDir())
	case err != nil:
		return own, nil //nolint:nilerr // it may have been removed; it is missed when it is needed
	}
	id := *bootstrap
	creds := *bootstrap.Creds
	creds.Certificate, creds.Token = nil, ""
	known := ""
	if ownErr == nil {
		creds.Certificate, known = own.Creds.Certificate, string(own.Digest[:])
	} else {
		creds.Missing = &proxy.MissingError{Reason: "it has no certificate yet; one is asked for with --bootstrap-file"}
	}
	id.Creds = &creds
	// Another bootstrap token makes no other node.
	id.Digest = sha256.Sum256(fmt.Appendf(nil, "%q %q %q %t %q", known, id.Server, creds.ServerName, creds.Insecure, id.CAPEM))
	return &id, nil
}

// kubeconfigOfServer is the file that says which apiserver is meant.
func kubeconfigOfServer(c *config.Config) string { return cmp.Or(c.BootstrapFile, c.Kubeconfig) }

// newEnrollment prepares to get the hub a certificate of its own, where it is to have
// one. hub makes requests in the node's name, or in that of a token's holder.
func (h *Hub) newEnrollment(hub *rest.Config, r prometheus.Registerer) (err error) {
	if h.creds.own == nil {
		return nil
	}
	h.enrollment, err = enroll.New(h.creds.own, enroll.Options{
		NodeName:      h.config.NodeName,
		BootstrapFile: h.config.BootstrapFile,
		ReadBootstrap: func() (*enroll.Bootstrap, error) { return readBootstrap(h.config.BootstrapFile) },
		Hub:           hub,
		Cloud:         h.upstream,
		Changed:       h.creds.reload,
		Registerer:    r,
		Logger:        h.log,
	})
	return err
}

// readBootstrap reads the bootstrap file.
func readBootstrap(file string) (*enroll.Bootstrap, error) {
	id, err := kubeconfig.Load(file)
	if err != nil {
		return nil, err
	}
	if id.Creds.Certificate != nil || id.Creds.Token == "" {
		return nil, fmt.Errorf("kubeconfig %s: it has a client certificate, and no bootstrap token", file)
	}
	cluster, err := kubeconfig.ClusterOf(file)
	return &enroll.Bootstrap{Token: id.Creds.Token, Cluster: cluster}, err
}

// missing says what the hub waits for before it can serve the node, or nil.
func (h *Hub) missing() error {
	if !h.creds.missing.Load() {
		return nil
	}
	if !h.upstream.State().Up {
		return errors.New("the node has no certificate yet, and no apiserver can be reached to ask for one")
	}
	const waiting = "the node has no certificate yet"
	if problem := h.enrollment.Problem(); problem != nil {
		return fmt.Errorf("%s: %w", waiting, problem)
	}
	return fmt.Errorf("%s; one is being asked for with --bootstrap-file %s", waiting, h.config.BootstrapFile)
}

// refused says that the apiservers do not take the node's credentials, and what to do.
func (h *Hub) refused(state proxy.State) string {
	todo := fmt.Sprintf("renew it, or put another into --kubeconfig %s, which is looked at every second", h.config.Kubeconfig)
	if h.config.BootstrapFile != "" {
		todo = "another one is asked for with --bootstrap-file " + h.config.BootstrapFile
		if problem := h.enrollment.Problem(); problem != nil {
			todo = problem.Error()
		}
	}
	return fmt.Sprintf("%s is refused by the apiserver since %s, and the node is served from the cache: %s",
		cmp.Or(h.creds.said(), "what the node is known by"), rfc3339(state.RefusedSince), todo)
}
