package hub

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/heldimages"
	"github.com/edgehub-io/edgehub/imagepull"
	"github.com/edgehub-io/edgehub/imagepull/apiserver"
	"github.com/edgehub-io/edgehub/imagepull/engine"
)

// images pre-pulls the images of upgrades.
type images struct {
	engine *engine.Engine
	puller *imagepull.Puller
}

// newImages does not connect: containerd may start after the hub, and the cloud may be away. others
// returns images that stay besides those of pre-pulls; it is called once the puller runs. changed is called when the
// conditions of pods may have changed.
func newImages(c *config.Config, userAgent string, cluster *apiserver.Cluster, online func() bool, others func() []string, changed func(), r prometheus.Registerer, log *slog.Logger) (*images, error) {
	fetched, err := imagepull.CountBytes(r)
	if err != nil {
		return nil, err
	}
	log = log.With("part", "imagepull")
	if err := heldimages.Note(c.RootDir, c.RuntimeEndpoint); err != nil {
		log.Error("a hub that is started without --container-runtime-endpoint, or uninstalled, may not find what is held", "err", err)
	}
	e, err := engine.New(engine.Options{
		Address:   c.RuntimeEndpoint,
		HostsDir:  c.RegistryConfigDir,
		Bandwidth: c.PullRate,
		MinFree:   c.PullMinFree,
		Fetched:   fetched,
		UserAgent: userAgent,
		Logger:    log,
	})
	if err != nil {
		return nil, fmt.Errorf("--container-runtime-endpoint: %w", err)
	}
	i := &images{engine: e}
	i.puller, err = imagepull.New(imagepull.Options{
		Dir:         filepath.Join(c.RootDir, "imagepull"),
		Engine:      e,
		Cloud:       cluster,
		Online:      online,
		Others:      others,
		Changed:     changed,
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

// close is called when the puller has ended.
func (i *images) close() {
	if i != nil {
		i.engine.Close()
	}
}
