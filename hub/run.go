package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/edgehub-io/edgehub/hub/access"
	"github.com/edgehub-io/edgehub/ota/api"
)

// cutTimeout is how long requests may take to end after their context was canceled.
const cutTimeout = 2 * time.Second

// Run serves until ctx ends or a port fails. It returns nil if ctx has ended. Nothing is left
// open when it returns.
func (h *Hub) Run(ctx context.Context) error {
	defer h.cloud.upstream.Close()
	defer h.upgrades.close()
	defer h.ports.cut()
	// The cache stops last, so that it stores what the last requests read.
	keep, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, ctx := errgroup.WithContext(ctx)
	h.state.serving.Store(true) // before the first request can ask
	g.Go(func() error { return h.cache.Run(keep) })
	for _, p := range h.ports.all {
		g.Go(p.run)
	}
	g.Go(func() error { return h.cloud.run(ctx) })
	g.Go(func() error { h.node.Run(ctx); return nil })
	g.Go(func() error { h.upgrades.run(ctx, h.api.Upgrade); return nil })
	g.Go(func() error { h.transforms.run(ctx); return nil })
	g.Go(func() error { h.pods.run(ctx); return nil })
	g.Go(func() error { h.clusterIP.run(ctx); return nil })
	g.Go(func() error {
		<-ctx.Done()
		h.stop()
		end()
		return nil
	})
	g.Go(func() error { return h.systemd.Run(ctx, h.state.status, h.alive) })
	h.ports.sockets.Reject(h.log)
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
	if err := serve(p.listener); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) { // stop closes the listener first
		return fmt.Errorf("serve %s: %w", p.name, err)
	}
	return nil
}

// stop has those who have just connected send their request, ends watches, gives everything else the grace period, upgraded
// connections (exec, port-forward) included, and then cancels what is left. The in-process port is closed last: an upgrade in progress on
// the node's API still needs it.
func (h *Hub) stop() {
	h.state.serving.Store(false)
	h.systemd.Notify("STOPPING=1")
	h.log.Info("hub stops", "grace", h.config.ShutdownGrace)
	own, others := h.ports.all[0], h.ports.all[1:]
	begins, cancel := context.WithTimeout(context.Background(), h.config.ShutdownGrace)
	defer cancel()
	for _, p := range others {
		p.listener.Close()
	}
	for _, p := range others {
		if l, ok := p.listener.(*access.Listener); ok {
			l.AwaitRequests(begins)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.config.ShutdownGrace)
	defer cancel()
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
	h.ports.local.transport.CloseIdleConnections()
	if err = errors.Join(err, own.server.Shutdown(ctx)); err != nil {
		h.log.Warn("requests are cut: they take longer than --shutdown-grace-period", "grace", h.config.ShutdownGrace)
	}
	h.closePorts()
	last, cancel := context.WithTimeout(context.Background(), cutTimeout)
	defer cancel()
	if err := h.proxy.Wait(last); err != nil {
		h.log.Error("requests did not end when they were cut", "waited", cutTimeout)
	}
	h.ports.local.transport.CloseIdleConnections()
}

// Close closes all ports and connections at once. It is for a Hub that is not run, and is
// safe to call after Run.
func (h *Hub) Close() error {
	h.closePorts()
	h.upgrades.close()
	return h.cache.Close()
}

func (h *Hub) closePorts() {
	if h.ports != nil {
		h.ports.close()
	}
	h.cloud.upstream.Close()
}

// alive requests the hub's health endpoint, as a program on the node would: an answer shows that
// the hub accepts connections and runs handlers. Over TLS any answer is good, since the request
// has no client certificate.
func (h *Hub) alive(ctx context.Context) error {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the request is to this very process, and has no secrets
	}}
	scheme, secure := "http", h.config.ServeClientCAFile != ""
	if secure {
		scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+h.config.ServeAddress+api.Healthz, http.NoBody)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		if ctx.Err() == nil && h.ports.isFull("--serve-port") {
			return nil // a hub that is alive has rejected it, and a restart would only cut kubelet off
		}
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK && !secure {
		return fmt.Errorf("%s answers %s", req.URL, res.Status)
	}
	return nil
}

// isFull reports whether all unreserved connections of a flag's port are taken.
func (p *ports) isFull(flag string) bool {
	for _, one := range p.all {
		if l, ok := one.listener.(*access.Listener); ok && one.name == flag {
			return l.Full()
		}
	}
	return false
}
