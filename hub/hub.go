package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/cache"
	"github.com/edgehub-io/edgehub/hub/access"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/credentials"
	"github.com/edgehub-io/edgehub/hub/servertls"
	"github.com/edgehub-io/edgehub/hub/systemd"
	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/proxy"
)

const (
	// headerTimeout is how long a client may take over the header of a request.
	headerTimeout = 30 * time.Second
	// keepAlive is how long an idle client connection is kept. It is longer than
	// the 90 s after which Go clients drop theirs, so that the hub never closes a
	// connection that a client is about to use.
	keepAlive = 3 * time.Minute
	// proxyHeader is how large the header of a request to the proxy ports may be, in bytes.
	// An apiserver takes a megabyte; so many of it that never end would be more than the
	// hub has, and nobody has to say who he is before.
	proxyHeader = 64 << 10
	// cutTimeout is how long requests may take to notice that they were cut.
	cutTimeout = 2 * time.Second
)

// Hub is one node's hub.
type Hub struct {
	config   *config.Config
	log      *slog.Logger
	proxy    *proxy.Proxy
	cache    *cache.Cache
	upstream *proxy.Upstream
	outage   *outage
	creds    *credentials.Node
	ports    []port                 // the first is the hub's own way in
	own      *http.Transport        // of the hub's own requests
	images   *images                // nil: none are pulled
	cert     *servertls.Certificate // nil: no port has needed it yet
	callers  *access.Callers
	conns    *access.Connections
	sockets  systemd.Listeners // which no port has taken
	systemd  *systemd.Notifier
	serving  atomic.Bool
}

// port is something that is served: a bound address and what answers there.
type port struct {
	name     string
	listener net.Listener
	server   *http.Server
}

// New reads the node's credentials and binds the hub's ports. userAgent names
// the hub in the requests that it makes itself. Metrics are registered on r.
// Close or Run has to be called on the Hub that it returns.
func New(c *config.Config, userAgent string, r *prometheus.Registry, log *slog.Logger) (*Hub, error) {
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
	metrics := proxy.NewMetrics(r)
	upstream, err := proxy.NewUpstream(servers, c.NodeName, c.Balance, id.Creds, c.Limits, log, metrics)
	if err != nil {
		return nil, fmt.Errorf("--server-addr: %w", err)
	}
	kept, err := openCache(c, upstream, r, log)
	if err != nil {
		return nil, err
	}
	h := &Hub{config: c, log: log, upstream: upstream, outage: recallOutage(c.RootDir, upstream, log), cache: kept, proxy: proxy.New(kept, log, metrics)}
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
	h.systemd = systemd.NewNotifier(h.log)
	if h.callers, err = access.NewCallers(h.config, r, h.log); err != nil {
		return err
	}
	h.conns = access.NewConnections(r)
	local := newInproc()
	h.serve("in process", local, h.proxy.Handler(proxy.Loopback))
	h.own = &http.Transport{DialContext: local.Dial}

	cloud := &rest.Config{Host: "http://edgehub", UserAgent: userAgent, Transport: h.own}
	if err := h.creds.Enroll(cloud, r); err != nil {
		return err
	}
	pods, err := ota.NewPods(cloud)
	if err != nil {
		return err
	}
	options := ota.Options{
		NodeName:   h.config.NodeName,
		Pods:       pods,
		Ready:      h.ready,
		Offline:    h.offline,
		Cache:      func() any { return h.cacheState() },
		Metrics:    promhttp.HandlerFor(r, promhttp.HandlerOpts{}),
		Registerer: r,
		Logger:     h.log,
	}
	if h.config.RuntimeEndpoint != "" {
		online := func() bool { return h.upstream.State().Up }
		if h.images, err = newImages(h.config, cloud, online, r, h.log); err != nil {
			return err
		}
		options.ImagePulls = h.images.puller
	}
	api, err := ota.New(options)
	if err != nil {
		return err
	}
	if err := h.listenAPI(api, r); err != nil {
		return err
	}
	if err := h.listenPlain(); err != nil {
		return err
	}
	return h.listenTLS()
}

func (h *Hub) listen(flag, address string, handler http.Handler) error {
	if address == "" {
		return nil
	}
	l, err := h.sockets.Take(address)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return fmt.Errorf("%s: the socket from systemd at %s is not for TCP", flag, l.Addr())
	}
	h.serve(flag, h.conns.Limit(flag, tcp, h.config.MaxConnections, h.callers.IsNode, h.log), handler)
	return nil
}

// listenPlain opens the port that lends the node's identity.
func (h *Hub) listenPlain() error {
	if h.config.ProxyAddress == "" {
		return nil
	}
	who := access.OnlyPrograms(proxy.LoopbackFor(h.callers.Refuse))
	if err := h.listen("--proxy-port", h.config.ProxyAddress, h.proxy.Handler(who)); err != nil {
		return err
	}
	h.lastServer().ConnContext = h.callers.ConnContext
	return nil
}

func (h *Hub) listenTLS() error {
	if h.config.SecureAddress == "" {
		return nil
	}
	cert, err := h.servingCert()
	if err != nil {
		return err
	}
	nodeUser := "system:node:" + h.config.NodeName
	handler := h.proxy.Handler(proxy.ClientCert(nodeUser, h.creds.ClientCAs, h.nodeIsAway, h.config.OfflineTokenGrace))
	if err := h.listen("--proxy-secure-port", h.config.SecureAddress, handler); err != nil {
		return err
	}
	h.lastServer().TLSConfig = cert.ServerConfig()
	h.lastServer().ConnContext = h.callers.ConnContext
	return nil
}

func (h *Hub) serve(name string, l net.Listener, handler http.Handler) {
	h.ports = append(h.ports, port{name, l, &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       keepAlive,
		MaxHeaderBytes:    maxHeader(proxyHeader),
		ErrorLog:          slog.NewLogLogger(h.log.With("port", name).Handler(), slog.LevelDebug),
	}})
}

// ready is nil while the hub serves the node.
func (h *Hub) ready() error {
	if !h.serving.Load() {
		return errors.New("the hub is stopping")
	}
	return h.creds.Missing()
}

// Run serves until ctx ends or a port fails. It returns nil after a stop that
// ctx asked for. Nothing is left open when it returns.
func (h *Hub) Run(ctx context.Context) error {
	defer h.upstream.Close()
	defer h.images.close()
	// Requests outlive ctx: they end by themselves, or are cut at the end of the
	// grace period.
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	// What the last requests have read is written too.
	keep, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.cache.Run(keep) })
	for _, p := range h.ports {
		p.server.BaseContext = func(net.Listener) context.Context { return requests }
		g.Go(p.run)
	}
	g.Go(func() error { return h.creds.Run(ctx) })
	g.Go(func() error { return h.upstream.Run(ctx) })
	g.Go(func() error { h.outage.run(ctx); return nil })
	g.Go(func() error { return h.images.run(ctx, h.upstream) })
	g.Go(func() error {
		<-ctx.Done()
		h.stop(cut)
		end()
		return nil
	})
	g.Go(func() error { return h.systemd.Run(ctx, h.status, h.alive) })
	h.sockets.Reject(h.log)
	h.serving.Store(true)
	h.systemd.Notify("READY=1")
	h.log.Info("hub serves", "node", h.config.NodeName, "api", h.config.ServeAddress,
		"proxy", h.config.ProxyAddress, "secure-proxy", h.config.SecureAddress)
	return g.Wait()
}

func (p port) run() error {
	serve := p.server.Serve
	if p.server.TLSConfig != nil {
		serve = func(l net.Listener) error { return p.server.ServeTLS(l, "", "") }
	}
	if err := serve(p.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", p.name, err)
	}
	return nil
}

// stop ends watches at once, gives everything else the grace period, upgraded
// connections (exec, port-forward) included, and then cuts what is left. The
// hub's own way in is closed last: an upgrade under way on the node's API still
// needs it.
func (h *Hub) stop(cut context.CancelFunc) {
	h.serving.Store(false)
	h.systemd.Notify("STOPPING=1")
	h.log.Info("hub stops", "grace", h.config.ShutdownGrace)
	ctx, cancel := context.WithTimeout(context.Background(), h.config.ShutdownGrace)
	defer cancel()
	own, others := h.ports[0], h.ports[1:]
	// No connection is used again from here on: a watch that is ended, and opened again
	// at once, is to find the next process, or nobody, rather than this one.
	var closed sync.WaitGroup
	var g errgroup.Group
	for _, p := range others {
		closed.Add(1)
		p.server.RegisterOnShutdown(closed.Done) // called when the listener is closed
		g.Go(func() error { return p.server.Shutdown(ctx) })
	}
	closed.Wait()
	h.proxy.Drain()
	err := errors.Join(g.Wait(), h.proxy.Wait(ctx))
	h.own.CloseIdleConnections()
	if err = errors.Join(err, own.server.Shutdown(ctx)); err != nil {
		h.log.Warn("requests are cut: they take longer than --shutdown-grace-period", "grace", h.config.ShutdownGrace)
	}
	cut()
	h.closePorts()
	last, cancel := context.WithTimeout(context.Background(), cutTimeout)
	defer cancel()
	if err := h.proxy.Wait(last); err != nil {
		h.log.Error("requests did not end when they were cut", "waited", cutTimeout)
	}
	h.own.CloseIdleConnections()
}

// Close drops all ports and connections at once. It is for a Hub that is not
// run, and does no harm after Run.
func (h *Hub) Close() error {
	h.closePorts()
	h.images.close()
	return h.cache.Close()
}

func (h *Hub) closePorts() {
	for _, p := range h.ports {
		p.server.Close()
		p.listener.Close()
	}
	h.sockets.Close()
	h.upstream.Close()
}
