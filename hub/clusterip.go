package hub

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/proxy/topology"
)

const (
	// trustInterval is how often containers are looked at. Only those that were started while kubelet did not
	// read through the hub distrust it, so they rarely change.
	trustInterval = 10 * time.Second
	// trustRetry is the same until that has been known once, which kube-proxy waits for.
	trustRetry = time.Second
)

// clusterIP has the cluster IP of the apiservers lead to the hub while the cloud is there, too, as long as no
// pod of the node distrusts the hub (--cluster-ip=always). A container trusts the hub from its start to its
// end, or never: it is decided anew when other containers run that might not, or other pods. No pod changes that by how it starts.
type clusterIP struct {
	suspects    func(context.Context) ([]string, error) // containers that may distrust the hub, and the pods, in order; none: no container may
	distrusting func() ([]string, error)                // the pods that do
	lead        func(toHub bool)
	log         *slog.Logger

	decided bool
	before  []string // suspects at the last decision
	inForce atomic.Bool
}

// newClusterIP returns nil unless the configuration asks for it.
func newClusterIP(c *config.Config, services *topology.State, routes *podRoutes, log *slog.Logger) *clusterIP {
	if c.ClusterIP != config.ClusterIPAlways {
		return nil
	}
	services.ExpectAPIServer()
	return &clusterIP{
		suspects: routes.suspects,
		distrusting: func() (pods []string, err error) {
			all, err := routes.find(0)
			for _, r := range all {
				if r.Distrusts {
					pods = append(pods, r.Namespace+"/"+r.Name)
				}
			}
			return pods, err
		},
		lead: services.LeadAPIServer,
		log:  log,
	}
}

// run decides until ctx ends.
func (c *clusterIP) run(ctx context.Context) {
	if c == nil {
		return
	}
	for failing := false; ; {
		err := c.look(ctx)
		if err != nil && !failing {
			c.log.Warn("it is not known which pods trust the hub; the cluster IP of the apiserver leads where it did", "err", err)
		}
		failing = err != nil
		wait := trustInterval
		if !c.decided {
			wait = trustRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// look decides if other containers may distrust the hub than did at the last decision.
func (c *clusterIP) look(ctx context.Context) error {
	suspects, err := c.suspects(ctx)
	if err != nil || c.decided && slices.Equal(suspects, c.before) {
		return err
	}
	var pods []string
	if len(suspects) > 0 {
		if pods, err = c.distrusting(); err != nil {
			return err
		}
	}
	toHub := len(pods) == 0
	changed := c.inForce.Swap(toHub) != toHub || !c.decided
	c.before, c.decided = suspects, true
	c.lead(toHub)
	switch {
	case changed && toHub:
		c.log.Info("the cluster IP of the apiserver leads to the hub: all pods trust it")
	case changed:
		c.log.Warn("the cluster IP of the apiserver leads past the hub while the cloud is there, until these pods restart, which do not trust the hub",
			"pods", pods[:min(len(pods), 10)], "all", len(pods))
	}
	return nil
}

// state returns nil for a nil clusterIP.
func (c *clusterIP) state() *api.ClusterIP {
	if c == nil {
		return nil
	}
	return &api.ClusterIP{InForce: c.inForce.Load()}
}
