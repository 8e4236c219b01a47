package hub

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/hub/binding"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/credentials"
	"github.com/edgehub-io/edgehub/hub/traffic"
	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// cloud is the way to the apiservers: where they are, with which credentials the node calls them, and whether they are those of
// the cluster that the hub's data is of.
type cloud struct {
	upstream *upstream.Upstream
	creds    *credentials.Node
	binding  *binding.Binding // before upstream
	outage   *outage
	traffic  *traffic.Meter
}

// newCloud reads the node's credentials. It does not connect. own sends requests through the hub itself.
func newCloud(c *config.Config, record binding.Record, own *rest.Config, r prometheus.Registerer, log *slog.Logger) (*cloud, error) {
	source, err := credentials.Open(c, log)
	if err != nil {
		return nil, err
	}
	id, err := source.Load()
	if err != nil {
		return nil, err
	}
	servers := c.Servers
	if len(servers) == 0 {
		if err := c.CheckLoop(id.Server); err != nil {
			return nil, fmt.Errorf("--server-addr is empty, and in kubeconfig %s the server %w", source.File(), err)
		}
		servers = []*url.URL{id.Server}
	}
	up, err := upstream.New(servers, c.NodeName, c.Balance, id.Creds, c.Limits, log, upstream.NewMetrics(r))
	if err != nil {
		return nil, fmt.Errorf("--server-addr: %w", err)
	}
	creds, err := credentials.New(source, id, up, own, r, log)
	if err != nil {
		return nil, err
	}
	return &cloud{
		upstream: up, creds: creds,
		binding: binding.New(record, binding.Options{File: c.BindingFile(), Upstream: up, Logger: log, CAs: creds.ServerCAs}),
		outage:  loadOutage(c.RootDir, up, log),
		traffic: traffic.Open(traffic.Options{
			File: filepath.Join(c.RootDir, "traffic.json"), Total: up.Bytes, Plausible: upstream.Plausible, Logger: log,
		}),
	}, nil
}

// run follows the apiservers and the node's credentials until ctx ends. It returns binding.ErrAnother if the cloud is another
// cluster.
func (c *cloud) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.creds.Run(ctx) })
	g.Go(func() error { return c.upstream.Run(ctx) })
	g.Go(func() error { return c.binding.Run(ctx) })
	g.Go(func() error { c.outage.run(ctx); return nil })
	g.Go(func() error { c.traffic.Run(ctx); return nil })
	return g.Wait()
}

// eachReturn calls returned whenever the node can use the cloud again, also at the start, until ctx ends.
func (c *cloud) eachReturn(ctx context.Context, returned func()) {
	ctx = authn.AsNode(ctx)
	for c.binding.AwaitMaySend(ctx) == nil {
		returned()
		select {
		case <-ctx.Done():
			return
		case <-c.upstream.Lost(ctx):
		}
	}
}

// online reports whether what waits for the cloud may be sent.
func (c *cloud) online() bool { return c.upstream.State().Up && c.binding.MaySend() }

// isAway reports whether the node cannot use the cloud: no apiserver can be reached, or
// they refuse the node's credentials.
func (c *cloud) isAway() bool {
	select {
	case <-c.upstream.Lost(authn.AsNode(context.Background())):
		return true
	default:
		return false
	}
}

// since reports whether the node can use the cloud, and since when.
func (c *cloud) since() (online bool, since time.Time) {
	state := c.upstream.State()
	if state.Refused {
		return false, state.RefusedSince
	}
	return state.Up, state.Since
}

// offline returns since when the node cannot reach the cloud, or "" while it can.
func (c *cloud) offline() string {
	state := c.upstream.State()
	switch {
	case state.Refused:
		return c.creds.Refused(state)
	case state.Up:
		return ""
	}
	return fmt.Sprintf("offline since %s: no apiserver can be reached, and the node is served from the cache",
		state.Since.UTC().Format(time.RFC3339))
}
