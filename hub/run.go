package hub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// cutTimeout is how long requests may take to end after their context was canceled.
const cutTimeout = 2 * time.Second

// Run serves until ctx ends or a port fails. It returns nil if ctx has ended. Nothing is left
// open when it returns.
func (h *Hub) Run(ctx context.Context) error {
	defer h.upstream.Close()
	defer h.upgrades.close()
	// Requests outlive ctx: they complete, or are canceled at the end of the grace period.
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	// The cache stops last, so that it stores what the last requests read.
	keep, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, ctx := errgroup.WithContext(ctx)
	h.serving.Store(true) // before the first request can ask
	g.Go(func() error { return h.cache.Run(keep) })
	for _, p := range h.ports {
		p.server.BaseContext = func(net.Listener) context.Context { return requests }
		g.Go(p.run)
	}
	g.Go(func() error { return h.creds.Run(ctx) })
	g.Go(func() error { return h.upstream.Run(ctx) })
	g.Go(func() error { return h.binding.Run(ctx) })
	g.Go(func() error { h.node.Run(ctx); return nil })
	g.Go(func() error { h.outage.run(ctx); return nil })
	g.Go(func() error { h.traffic.Run(ctx); return nil })
	g.Go(func() error { h.upgrades.run(ctx, h.api.Upgrade, h.upstream, h.binding); return nil })
	g.Go(func() error { h.transforms.run(ctx); return nil })
	g.Go(func() error { h.pods.run(ctx); return nil })
	g.Go(func() error { h.clusterIP.run(ctx); return nil })
	g.Go(func() error {
		<-ctx.Done()
		h.stop(cut)
		end()
		return nil
	})
	g.Go(func() error { return h.systemd.Run(ctx, h.status, h.alive) })
	h.sockets.Reject(h.log)
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

// stop ends watches at once, gives everything else the grace period, upgraded connections
// (exec, port-forward) included, and then cancels what is left. The in-process port is
// closed last: an upgrade in progress on the node's API still needs it.
func (h *Hub) stop(cut context.CancelFunc) {
	h.serving.Store(false)
	h.systemd.Notify("STOPPING=1")
	h.log.Info("hub stops", "grace", h.config.ShutdownGrace)
	ctx, cancel := context.WithTimeout(context.Background(), h.config.ShutdownGrace)
	defer cancel()
	own, others := h.ports[0], h.ports[1:]
	// No connection is reused from here on: a watch that ends and is reopened at once must not
	// reach this process again.
	var closed sync.WaitGroup
	var g errgroup.Group
	for _, p := range others {
		closed.Add(1)
		p.server.RegisterOnShutdown(closed.Done) // called when the listener is closed
		g.Go(func() error { return p.server.Shutdown(ctx) })
	}
	closed.Wait()
	for _, p := range others {
		if p.http2 != nil {
			_ = p.http2.Shutdown(ctx) // it asks clients to go; it has nothing of its own to wait for
		}
	}
	h.proxy.Drain()
	h.api.Drain()
	h.page.Drain()
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

// Close closes all ports and connections at once. It is for a Hub that is not run, and is
// safe to call after Run.
func (h *Hub) Close() error {
	h.closePorts()
	h.upgrades.close()
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
