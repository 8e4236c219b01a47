package hub

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/heldimages"
	"github.com/edgehub-io/edgehub/imagepull"
	"github.com/edgehub-io/edgehub/imagepull/apiserver"
	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/podreport"
)

// images pre-pulls the images of upgrades, if --container-runtime-endpoint is given.
type images struct {
	engine *engine.Engine    // nil: images are not pulled
	puller *imagepull.Puller // nil: the same
	root   string
	log    *slog.Logger
}

// newImages does not connect: containerd may start after the hub, and the cloud may be away. others
// returns images that stay besides those of pre-pulls, and needed those of them that stay whatever room there is. changed is called when what is reported of pods may have changed.
func newImages(c *config.Config, userAgent string, cluster *apiserver.Cluster, online func() bool, others, needed func() []string, changed func(), r prometheus.Registerer, log *slog.Logger) (*images, error) {
	log = log.With("part", "imagepull")
	if c.RuntimeEndpoint == "" {
		return &images{root: c.RootDir, log: log}, nil
	}
	fetched, err := imagepull.CountBytes(r)
	if err != nil {
		return nil, err
	}
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
	p, err := imagepull.New(imagepull.Options{
		Dir:         filepath.Join(c.RootDir, "imagepull"),
		Engine:      e,
		Cloud:       cluster,
		Online:      online,
		Others:      func() []string { return slices.Concat(others(), needed()) },
		Needed:      needed,
		Changed:     changed,
		Parallelism: c.PullParallelism,
		Jitter:      c.PullJitter,
		KubeletDir:  c.KubeletRootDir,
		Registerer:  r,
		Logger:      log,
	})
	if err != nil {
		e.Close()
		return nil, err
	}
	return &images{engine: e, puller: p, root: c.RootDir, log: log}, nil
}

// run pulls until ctx ends, or else releases what a hub that did has retained.
func (i *images) run(ctx context.Context) {
	if i.puller == nil {
		heldimages.ReleaseFormer(ctx, i.root, i.log)
		return
	}
	i.puller.Run(ctx)
}

func (i *images) podsChanged(pods []*corev1.Pod) {
	if i.puller != nil {
		i.puller.PodsChanged(pods)
	}
}

// othersChanged is called when the images that stay besides those of pre-pulls are others.
func (i *images) othersChanged() {
	if i.puller != nil {
		i.puller.OthersChanged()
	}
}

// report is a podreport.Source.
func (i *images) report(pod *corev1.Pod) (r podreport.Report) {
	if i.puller != nil {
		r.Conditions = i.puller.Conditions(pod)
	}
	return r
}

func (i *images) cloudReturned() {
	if i.puller != nil {
		i.puller.CloudReturned()
	}
}

// api returns nil if images are not pulled.
func (i *images) api() ota.ImagePulls {
	if i.puller == nil {
		return nil
	}
	return i.puller
}

// close is called when the puller has ended, also for images that were not opened.
func (i *images) close() {
	if i != nil && i.engine != nil {
		i.engine.Close()
	}
}
