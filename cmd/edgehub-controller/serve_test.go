package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// start listens and serves until the test ends.
func start(t *testing.T, cfg *config, p probes) []*server {
	t.Helper()
	registry := prometheus.NewRegistry()
	l, err := newLeadership(election{}, nil, registry)
	if err != nil {
		t.Fatal(err)
	}
	if p.leadership == nil {
		p.leadership = l
	}
	servers, err := listen(cfg, registry, p)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var g errgroup.Group
	for _, s := range servers {
		g.Go(func() error { return s.serve(ctx) })
	}
	t.Cleanup(func() {
		stop()
		http.DefaultClient.CloseIdleConnections()
		if err := g.Wait(); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return servers
}

func get(t *testing.T, s *server, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.listener.Addr().String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestMetricsAndProbesAreServedApart(t *testing.T) {
	s := start(t, &config{metricsAddr: "127.0.0.1:0", probeAddr: "localhost:0"}, probes{synced: func() bool { return true }})
	if len(s) != 2 {
		t.Fatalf("got %d servers, want 2", len(s))
	}
	if code, body := get(t, s[0], "/metrics"); code != http.StatusOK || !strings.Contains(body, "edgehub_controller_leader 0") {
		t.Errorf("metrics: %d %s", code, body)
	}
	if code, _ := get(t, s[0], "/healthz"); code != http.StatusNotFound {
		t.Errorf("healthz where metrics are: %d, want 404", code)
	}
	if code, body := get(t, s[1], "/healthz"); code != http.StatusOK || body != "OK" {
		t.Errorf("healthz: %d %s", code, body)
	}
}

func TestEqualAddressesAreOneServer(t *testing.T) {
	s := start(t, &config{metricsAddr: "127.0.0.1:0", probeAddr: "127.0.0.1:0"}, probes{synced: func() bool { return true }})
	if len(s) != 1 {
		t.Fatalf("got %d servers, want 1", len(s))
	}
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		if code, body := get(t, s[0], path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

func TestAPortInUseNamesTheFlag(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for flag, cfg := range map[string]*config{
		"--metrics-addr":      {metricsAddr: taken.Addr().String(), probeAddr: "127.0.0.1:0"},
		"--health-probe-addr": {metricsAddr: "127.0.0.1:0", probeAddr: taken.Addr().String()},
	} {
		if _, err := listen(cfg, prometheus.NewRegistry(), probes{}); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("got %v, want an error with %s", err, flag)
		}
	}
}

func TestReadiness(t *testing.T) {
	tests := map[string]struct {
		leads, synced bool
		want          int
	}{
		"one that waits is ready to take over": {false, false, http.StatusOK},
		"the leader is not before it has seen": {true, false, http.StatusServiceUnavailable},
		"the leader is once it has seen":       {true, true, http.StatusOK},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l, err := newLeadership(election{}, nil, prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			if tt.leads {
				l.state.Store(leading)
			}
			s := start(t, &config{metricsAddr: "127.0.0.1:0", probeAddr: "localhost:0"},
				probes{leadership: l, synced: func() bool { return tt.synced }})
			if code, body := get(t, s[1], "/readyz"); code != tt.want {
				t.Errorf("got %d %s, want %d", code, body, tt.want)
			}
		})
	}
}
