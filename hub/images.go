package hub

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/imagepull"
	"github.com/edgehub-io/edgehub/imagepull/apiserver"
	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/ota/coreclient"
	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// images pre-pulls the images of upgrades.
type images struct {
	engine  *engine.Engine
	cluster *apiserver.Cluster
	puller  *imagepull.Puller
}

// newImages does not connect: containerd may start after the hub, and the cloud may be away.
func newImages(c *config.Config, cloud *rest.Config, online func() bool, r prometheus.Registerer, log *slog.Logger) (*images, error) {
	client, err := coreclient.New(cloud)
	if err != nil {
		return nil, err
	}
	fetched, err := imagepull.CountBytes(r)
	if err != nil {
		return nil, err
	}
	log = log.With("part", "imagepull")
	e, err := engine.New(engine.Options{
		Address:   c.RuntimeEndpoint,
		HostsDir:  c.RegistryConfigDir,
		Bandwidth: c.PullRate,
		MinFree:   c.PullMinFree,
		Fetched:   fetched,
		UserAgent: cloud.UserAgent,
		Logger:    log,
	})
	if err != nil {
		return nil, fmt.Errorf("--container-runtime-endpoint: %w", err)
	}
	i := &images{engine: e, cluster: apiserver.NewCluster(client, c.NodeName)}
	i.puller, err = imagepull.New(imagepull.Options{
		Dir:         filepath.Join(c.RootDir, "imagepull"),
		Engine:      e,
		Cloud:       i.cluster,
		Online:      online,
		Parallelism: c.PullParallelism,
		Jitter:      c.PullJitter,
		KubeletDir:  c.KubeletRootDir,
		Registerer:  r,
		Logger:      log,
	})
	if err != nil {
		i.close()
		return nil, err
	}
	return i, nil
}

// run pulls images until ctx ends.
func (i *images) run(ctx context.Context, cloud *upstream.Upstream) error {
	if i == nil {
		return nil
	}
	var all sync.WaitGroup
	all.Go(func() { i.puller.Run(ctx) })
	all.Go(func() {
		ctx := authn.AsNode(ctx)
		for {
			select {
			case <-ctx.Done():
				return
			case <-cloud.Lost(ctx):
			}
			if cloud.WaitUp(ctx) == nil {
				i.puller.CloudReturned()
			}
		}
	})
	all.Wait()
	return nil
}

// close is called after run, or instead of it.
func (i *images) close() {
	if i != nil {
		i.cluster.Close()
		i.engine.Close()
	}
}
