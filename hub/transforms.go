package hub

import (
	"context"
	"log/slog"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/cache/derived"
	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/feed"
	"github.com/edgehub-io/edgehub/ota/coreclient"
	"github.com/edgehub-io/edgehub/proxy/topology"
	"github.com/edgehub-io/edgehub/proxy/transform"
)

// transforms changes what some clients read of some objects.
type transforms struct {
	names    []string // of those that are active
	topology *topology.State
	feed     *feed.Topology // nil: no filter of Services is active
}

// newTransforms returns the transforms that are on, and what answers requests with them. pods
// is nil if pods are not led to the hub. clusterCAs is not called before a request is answered.
func newTransforms(c *config.Config, pods *podAccess, clusterCAs func() []byte, answers http.RoundTripper, r prometheus.Registerer, log *slog.Logger) (*transforms, http.RoundTripper) {
	t := &transforms{topology: topology.New(c.NodeName, log)}
	var all []transform.Transform
	if pods != nil {
		all = pods.transforms(clusterCAs)
	}
	all = append(all,
		transform.NewServiceTopology(t.topology, c.ServiceTopologyAccounts),
		transform.NewDiscardService(t.topology, c.ServiceProxyAccounts),
		transform.NewNodePortIsolation(t.topology, c.ServiceProxyAccounts),
	)
	all = slices.DeleteFunc(all, func(one transform.Transform) bool { return !slices.Contains(c.Transforms, one.Name) })
	for _, one := range all {
		t.names = append(t.names, one.Name)
	}
	t.names = slices.Compact(t.names) // some are for several resources
	if c.ClusterIP == config.ClusterIPAlways {
		t.names = append(t.names, transform.ClusterIP)
		all = append(all, transform.NewClusterIP(t.topology, c.ServiceProxyAccounts, podServers(c), derived.LeadBareToHub))
	}
	return t, transform.New(answers, transform.Options{
		IsNode: isNode, Account: identity.ClaimedAccount,
		Transforms: all, Topology: t.topology, Registerer: r, Logger: log,
	})
}

// read has the filters read what they decide by, through the hub.
func (t *transforms) read(c *config.Config, cloud *rest.Config, log *slog.Logger) error {
	if !slices.ContainsFunc(t.names, func(name string) bool {
		return slices.Contains([]string{transform.ServiceTopology, transform.DiscardService, transform.NodePortIsolation, transform.ClusterIP}, name)
	}) {
		return nil
	}
	core, err := coreclient.New(cloud)
	if err != nil {
		return err
	}
	t.feed, err = feed.New(t.topology, c.NodeName, cloud, core, log.With("part", "service filters"))
	return err
}

// run reads until ctx ends.
func (t *transforms) run(ctx context.Context) {
	if t.feed != nil {
		t.feed.Run(ctx)
	}
}
