package credentials

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/hub/enroll"
	"github.com/edgehub-io/edgehub/hub/kubeconfig"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// Enroll prepares to request a certificate of the hub's own, if --bootstrap-file is given.
// hub is how to send requests through the hub itself.
func (n *Node) Enroll(hub *rest.Config, r prometheus.Registerer) (err error) {
	if n.source.own == nil {
		return nil
	}
	n.enrollment, err = enroll.New(n.source.own, enroll.Options{
		NodeName:      n.source.config.NodeName,
		BootstrapFile: n.source.config.BootstrapFile,
		ReadBootstrap: func() (*enroll.Bootstrap, error) { return readBootstrap(n.source.config.BootstrapFile) },
		Hub:           hub,
		Cloud:         n.upstream,
		Changed:       n.Reload,
		Registerer:    r,
		Logger:        n.log,
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

// Missing returns what the hub still waits for before it can serve the node, or nil.
func (n *Node) Missing() error {
	if !n.missing.Load() {
		return nil
	}
	if !n.upstream.State().Up {
		return errors.New("the node has no certificate yet, and no apiserver can be reached to ask for one")
	}
	const waiting = "the node has no certificate yet"
	if problem := n.enrollment.Problem(); problem != nil {
		return fmt.Errorf("%s: %w", waiting, problem)
	}
	return fmt.Errorf("%s; one is being asked for with --bootstrap-file %s", waiting, n.source.config.BootstrapFile)
}

// Refused returns a message that the apiservers reject the node's credentials, with what to
// do about it.
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
