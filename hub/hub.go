package hub

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/cache"
	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/hub/access"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/eventlog"
	"github.com/edgehub-io/edgehub/hub/ownnode"
	"github.com/edgehub-io/edgehub/hub/support"
	"github.com/edgehub-io/edgehub/hub/systemd"
	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/page"
	"github.com/edgehub-io/edgehub/proxy"
	"github.com/edgehub-io/edgehub/proxy/transform"
)

// Hub is one node's hub. It has what runs, each part constructed from those before it.
type Hub struct {
	config     *config.Config
	log        *slog.Logger
	systemd    *systemd.Notifier
	cloud      *cloud
	cache      *cache.Cache
	upgrades   *upgrades
	pods       *podAccess // nil: pods do not use the hub
	transforms *transforms
	node       *ownnode.Node
	proxy      *proxy.Proxy
	clusterIP  *clusterIP // nil: it leads to the hub in outages only
	state      *state
	api        *ota.API
	shown      *shown
	page       *page.Page
	ports      *ports
}

// New reads the node's credentials and binds the hub's ports. userAgent is sent with the hub's
// own requests. Metrics are registered on r. The caller must call Run or Close.
func New(c *config.Config, userAgent string, r *prometheus.Registry, log *slog.Logger) (*Hub, error) {
	notifier := systemd.NewNotifier(log)
	record, err := loadBinding(c, notifier, log)
	if err != nil {
		return nil, err
	}
	local := newInproc()
	own := local.client(userAgent)
	cloud, err := newCloud(c, record, own, r, log)
	if err != nil {
		return nil, err
	}
	kept, err := openCache(c, cloud.binding, r, log)
	if err != nil {
		return nil, err
	}
	h := &Hub{config: c, log: log, systemd: notifier, cloud: cloud, cache: kept}
	if err := h.open(local, own, userAgent, r); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// open is the second half of New: what it has opened when it fails, Close closes.
func (h *Hub) open(local *inproc, own *rest.Config, userAgent string, r *prometheus.Registry) (err error) {
	c, log := h.config, h.log
	client, err := ota.NewPods(own)
	if err != nil {
		return err
	}
	if h.upgrades, err = newUpgrades(c, own, client, h.cloud, r, log); err != nil {
		return err
	}
	h.cache.OnStoreRestored(h.upgrades.inPlace.StoreRestored)
	if h.pods, err = openPodAccess(c, log); err != nil {
		return err
	}
	transforms, applied, err := newTransforms(c, h.pods, h.upgrades.inPlace, h.cloud.creds.ServerCAs, own, log)
	if err != nil {
		return err
	}
	h.transforms = transforms
	h.node = ownnode.New(ownnode.Options{
		Name: c.NodeName, IsNode: isNode, Away: h.cloud.isAway, Boot: ownnode.BootID(),
		Back: h.upgrades.queue.CloudReturned, Cloned: h.upgrades.recordClone, SetCondition: h.upgrades.cluster.SetNodeCondition,
		Registerer: r, Logger: log,
	})
	events := new(eventlog.Log)
	answers := transform.New(h.cache, transform.Options{
		IsNode: isNode, Account: identity.ClaimedAccount,
		Transforms: applied, Topology: transforms.topology, Registerer: r, Logger: log,
	})
	watched := &heartbeats{next: h.node.Wrap(events.Wrap(answers, isNode)), node: c.NodeName, cloud: h.cloud, upgrades: h.upgrades, log: log}
	h.proxy = proxy.New(watched, tenantOf(h.cache), access.Refused, log, proxy.NewMetrics(r))
	routes := &podRoutes{config: c, pods: h.upgrades.pods, client: client}
	if e := h.upgrades.images.engine; e != nil {
		routes.runtime = e
	}
	h.clusterIP = newClusterIP(c, transforms.topology, routes, log)
	cert, err := servingCert(c, log)
	if err != nil {
		return err
	}
	h.state = &state{
		config: c, cloud: h.cloud, cache: h.cache, node: h.node, transforms: transforms,
		pods: h.pods, routes: routes, clusterIP: h.clusterIP, cert: cert,
	}
	metrics := promhttp.HandlerFor(r, promhttp.HandlerOpts{})
	if h.api, err = ota.New(h.apiOptions(client, metrics, r)); err != nil {
		return err
	}
	h.shown = newShown(c, strings.TrimPrefix(userAgent, "edgehub/"), h.state, h.upgrades, h.api, events, metrics)
	h.page = h.shown.page(c, log.With("part", "page"))
	h.ports, err = openPorts(c, portHandlers{
		local: local, proxy: h.proxy, cloud: h.cloud, pods: h.pods, cert: cert, api: h.page.Wrap(h.api),
	}, r, log)
	return err
}

// apiOptions are those of the node's HTTP API.
func (h *Hub) apiOptions(client *ota.Pods, metrics http.Handler, r prometheus.Registerer) ota.Options {
	return ota.Options{
		NodeName:     h.config.NodeName,
		Pods:         client,
		Followed:     h.upgrades.pods,
		Ready:        h.state.ready,
		Offline:      h.cloud.offline,
		Trouble:      h.state.cacheTrouble,
		Unregistered: h.node.Missing,
		Cloud:        h.cloud.since,
		Cache:        func() any { return h.state.ofCache() },
		ImagePulls:   h.upgrades.images.api(),
		Queue:        h.upgrades.queue,
		NoQueueing:   !h.config.QueueUpgrades,
		Holds:        h.upgrades.holds,
		Rollbacks:    h.upgrades.rollbacks,
		InPlace:      h.upgrades.inPlaceAPI(),
		Bundles:      h.upgrades.bundles,
		Deleted:      h.upgrades.missing.Deleted,
		Metrics:      metrics,
		Registerer:   r,
		Logger:       h.log,
	}
}

// AddToBundle adds parts to each support bundle. It is called before Run.
func (h *Hub) AddToBundle(parts ...support.Part) { h.shown.extra = append(h.shown.extra, parts...) }
