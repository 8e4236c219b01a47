package hub

import (
	"context"
	"log/slog"
	"slices"

	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/cache/derived"
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

// newTransforms returns the transforms that are on, also as what is applied to answers. pods is nil if pods are not led to the hub. inPlace decides which images kubelet reads of pods. What the filters of
// Services decide by is read with own, through the hub.
func newTransforms(c *config.Config, pods *podAccess, inPlace transform.PodImages, clusterCAs func() []byte, own *rest.Config, log *slog.Logger) (t *transforms, all []transform.Transform, err error) {
	t = &transforms{topology: topology.New(c.NodeName, log)}
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
	all = append(all, transform.NewPodImages(inPlace))
	if c.ClusterIP == config.ClusterIPAlways {
		t.names = append(t.names, transform.ClusterIP)
		all = append(all, transform.NewClusterIP(t.topology, c.ServiceProxyAccounts, podServers(c), derived.LeadBareToHub))
	}
	if !slices.ContainsFunc(t.names, func(name string) bool {
		return slices.Contains([]string{transform.ServiceTopology, transform.DiscardService, transform.NodePortIsolation, transform.ClusterIP}, name)
	}) {
		return t, all, nil
	}
	core, err := coreclient.New(own)
	if err != nil {
		return nil, nil, err
	}
	t.feed, err = feed.New(t.topology, c.NodeName, own, core, log.With("part", "service filters"))
	return t, all, err
}

// run reads until ctx ends.
func (t *transforms) run(ctx context.Context) {
	if t.feed != nil {
		t.feed.Run(ctx)
	}
}
