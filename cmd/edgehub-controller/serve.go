package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// readHeaderTimeout closes connections of clients that send nothing.
	readHeaderTimeout = 10 * time.Second
	// shutdownTimeout is how long a scrape may still take at shutdown.
	shutdownTimeout = 5 * time.Second
)

// probes answers liveness and readiness probes.
type probes struct {
	leadership *leadership
	// synced reports whether the controller acts on what it sees.
	synced func() bool
}

// healthz fails when a restart would help: the process has not noticed that it could not renew
// its lease.
func (p probes) healthz(w http.ResponseWriter, r *http.Request) {
	answer(w, p.leadership.check(r))
}

// readyz fails while this process leads and has not seen all DaemonSets. A process that waits
// for the lease is ready to take it.
func (p probes) readyz(w http.ResponseWriter, _ *http.Request) {
	if p.leadership.leads() && !p.synced() {
		answer(w, errors.New("has the lead, but has not seen every DaemonSet yet: if this lasts, the log says why the apiserver does not answer"))
		return
	}
	answer(w, nil)
}

func answer(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintln(w, err)
		return
	}
	_, _ = io.WriteString(w, "OK")
}

// server listens, and serves once serve is called.
type server struct {
	listener net.Listener
	http     *http.Server
}

// listen opens the ports, so that a port in use is an error at once, which names the flag. Equal
// addresses make one server.
func listen(cfg *config, metrics prometheus.Gatherer, p probes) ([]*server, error) {
	metricsMux, probeMux := http.NewServeMux(), http.NewServeMux()
	if cfg.probeAddr == cfg.metricsAddr {
		probeMux = metricsMux
	}
	metricsMux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	probeMux.HandleFunc("GET /healthz", p.healthz)
	probeMux.HandleFunc("GET /readyz", p.readyz)

	m, err := newServer(cfg.metricsAddr, metricsMux)
	if err != nil {
		return nil, fmt.Errorf("--metrics-addr: %w", err)
	}
	if probeMux == metricsMux {
		return []*server{m}, nil
	}
	h, err := newServer(cfg.probeAddr, probeMux)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--health-probe-addr: %w", err), m.listener.Close())
	}
	return []*server{m, h}, nil
}

func newServer(addr string, h http.Handler) (*server, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err // has what, where and why
	}
	return &server{listener: listener, http: &http.Server{Handler: h, ReadHeaderTimeout: readHeaderTimeout}}, nil
}

// serve returns nil once ctx is done and the last answer is out.
func (s *server) serve(ctx context.Context) error {
	stopped := make(chan error, 1) // one result, whether or not anyone waits
	go func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		stopped <- s.http.Shutdown(grace)
	}()
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", s.listener.Addr(), err)
	}
	if err := <-stopped; err != nil {
		return fmt.Errorf("stop serving %s: %w", s.listener.Addr(), err)
	}
	return nil
}
