package credentials

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/edgehub-io/edgehub/hub/enroll"
	"github.com/edgehub-io/edgehub/hub/kubeconfig"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// Enroll prepares to request a certificate for the hub, if --bootstrap-file is given. hub sends
// requests through the hub itself. It must be called before Run, Missing and Refused.
func (n *Node) Enroll(hub *rest.Config, r prometheus.Registerer) (err error) {
	if n.source.own == nil {
		return nil
	}
	n.enrollment, err = enroll.New(n.source.own, enroll.Options{
		NodeName:      n.source.config.NodeName,
		BootstrapFile: n.source.config.BootstrapFile,
		ReadBootstrap: n.source.readBootstrap,
		Hub:           hub,
		Cloud:         n.upstream,
		Changed:       n.Reload,
		Registerer:    r,
		Logger:        n.log,
	})
	return err
}

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
