package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/cache"
	"github.com/edgehub-io/edgehub/hub/access"
	"github.com/edgehub-io/edgehub/hub/binding"
	"github.com/edgehub-io/edgehub/hub/bundle"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/credentials"
	"github.com/edgehub-io/edgehub/hub/eventlog"
	"github.com/edgehub-io/edgehub/hub/ownnode"
	"github.com/edgehub-io/edgehub/hub/servertls"
	"github.com/edgehub-io/edgehub/hub/systemd"
	"github.com/edgehub-io/edgehub/hub/traffic"
	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/page"
	"github.com/edgehub-io/edgehub/proxy"
	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// Hub is one node's hub.
type Hub struct {
	config     *config.Config
	log        *slog.Logger
	proxy      *proxy.Proxy
	cache      *cache.Cache
	upstream   *upstream.Upstream
	binding    *binding.Binding // before upstream: of which cluster the cache is
	outage     *outage
	creds      *credentials.Node
	ports      []port          // the first is in process, for the hub's own requests
	own        *http.Transport // for the hub's own requests
	upgrades   *upgrades
	api        *ota.API
	cert       *servertls.Certificate // nil until a port needs it
	pods       *podAccess             // nil: pods do not use the hub
	podList    *ota.Pods              // of this node
	routes     podRoutes              // of these pods
	page       *page.Page
	events     eventlog.Log
	node       *ownnode.Node
	traffic    *traffic.Meter
	extra      []bundle.Part // of support bundles
	clusterIP  *clusterIP    // nil: it leads to the hub in outages only
	transforms *transforms
	callers    *access.Callers
	conns      *access.Connections
	proxyConns *access.Budget    // of all addresses of the proxy
	sockets    systemd.Listeners // inherited, and not used by a port yet
	systemd    *systemd.Notifier
	serving    atomic.Bool
}

// New reads the node's credentials and binds the hub's ports. userAgent is sent with the hub's
// own requests. Metrics are registered on r. The caller must call Run or Close.
func New(c *config.Config, userAgent string, r *prometheus.Registry, log *slog.Logger) (*Hub, error) {
	notifier := systemd.NewNotifier(log)
	record, err := loadBinding(c, notifier, log)
	if err != nil {
		return nil, err
	}
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
	upstream, err := upstream.New(servers, c.NodeName, c.Balance, id.Creds, c.Limits, log, upstream.NewMetrics(r))
	if err != nil {
		return nil, fmt.Errorf("--server-addr: %w", err)
	}
	h := &Hub{config: c, log: log, systemd: notifier, upstream: upstream, outage: loadOutage(c.RootDir, upstream, log)}
	h.binding = binding.New(record, binding.Options{File: c.BindingFile(), Upstream: upstream, Logger: log, CAs: func() []byte {
		if h.creds == nil {
			return id.CAPEM
		}
		return h.creds.ServerCAs()
	}})
	kept, err := openCache(c, h.binding, r, log)
	if err != nil {
		return nil, err
	}
	h.cache = kept
	if len(c.PodAddresses) > 0 {
		if h.pods, err = openPodAccess(c, log); err != nil {
			return nil, errors.Join(err, h.Close())
		}
	}
	var answers http.RoundTripper
	h.transforms, answers = newTransforms(c, h.pods, func() []byte { return h.creds.ServerCAs() }, kept, r, log)
	h.node = ownnode.New(ownnode.Options{
		Name: c.NodeName, IsNode: isNode, Away: h.nodeIsAway, Back: func() { h.upgrades.queue.CloudReturned() },
		Boot: ownnode.BootID(), Cloned: func(message string) { h.upgrades.nodeEvent(c.NodeName, ownnode.ClonedReason, message) },
		SetCondition: func(ctx context.Context, c corev1.NodeCondition) error {
			return h.upgrades.cluster.SetNodeCondition(ctx, c)
		},
		Registerer: r, Logger: log,
	})
	h.proxy = proxy.New(h.node.Wrap(h.events.Wrap(answers, isNode)), h.tenant, access.Refused, log, proxy.NewMetrics(r))
	h.traffic = openTraffic(c, upstream, log)
	if h.creds, err = credentials.New(source, id, upstream, r, log); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	if err := h.bind(userAgent, r); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// bind opens all ports.
func (h *Hub) bind(userAgent string, r *prometheus.Registry) error {
	var err error
	if h.sockets, err = systemd.InheritListeners(); err != nil {
		return err
	}
	if h.callers, err = access.NewCallers(h.config, r, h.log); err != nil {
		return err
	}
	h.conns, h.proxyConns = access.NewConnections(r), access.NewBudget(h.config.MaxConnections).WithLargeHeaders()
	local := newInproc()
	h.serve("in process", local, &http.Server{Handler: h.proxy.Handler(authn.Loopback), MaxHeaderBytes: proxyHeader})
	h.own = &http.Transport{DialContext: local.Dial}

	cloud := &rest.Config{Host: "http://edgehub", UserAgent: userAgent, Transport: h.own}
	if err := h.creds.Enroll(cloud, r); err != nil {
		return err
	}
	if err := h.transforms.read(h.config, cloud, h.log); err != nil {
		return err
	}
	pods, err := ota.NewPods(cloud)
	if err != nil {
		return err
	}
	h.podList = pods
	options := ota.Options{
		NodeName:     h.config.NodeName,
		Pods:         pods,
		Ready:        h.ready,
		Offline:      h.offline,
		Trouble:      h.cacheTrouble,
		Unregistered: h.node.Missing,
		Cloud:        h.cloud,
		Cache:        func() any { return h.cacheState() },
		Metrics:      promhttp.HandlerFor(r, promhttp.HandlerOpts{}),
		Registerer:   r,
		Logger:       h.log,
	}
	online := func() bool { return h.upstream.State().Up && h.binding.MaySend() }
	if h.upgrades, err = newUpgrades(h.config, cloud, online, r, h.log); err != nil {
		return err
	}
	options.NoQueueing = !h.config.QueueUpgrades
	options.Holds, options.Queue, options.Rollbacks, options.Deleted = h.upgrades.holds, h.upgrades.queue, h.upgrades.rollbacks, h.upgrades.missing.Deleted
	options.ImagePulls = h.upgrades.images.api()
	h.clusterIP = newClusterIP(h)
	api, err := ota.New(options)
	if err != nil {
		return err
	}
	h.api = api
	h.page = h.newPage(strings.TrimPrefix(userAgent, "edgehub/"), options.Metrics)
	if err := h.listenAPI(h.page.Wrap(api), r); err != nil {
		return err
	}
	if err := h.listenPlain(); err != nil {
		return err
	}
	return h.listenTLS()
}
