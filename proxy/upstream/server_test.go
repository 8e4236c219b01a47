package upstream

import (
	"bytes"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestOrder(t *testing.T) {
	tests := map[string]struct {
		balance Balance
		want    string // first servers of four requests
	}{
		"priority keeps to the first": {Priority, "aaaa"},
		"round robin takes turns":     {RoundRobin, "bcab"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var urls []*url.URL
			for _, host := range []string{"a", "b", "c"} {
				urls = append(urls, &url.URL{Scheme: "https", Host: host})
			}
			u, err := New(urls, "node", tt.balance, &Credentials{}, Limits{}, slog.New(slog.DiscardHandler), NewMetrics(prometheus.NewRegistry()))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for range 4 {
				order := u.order()
				got += order[0].address.Host
				if len(order) != 3 || order[0] == order[1] || order[1] == order[2] || order[0] == order[2] {
					t.Fatalf("%d servers, not three different ones", len(order))
				}
			}
			if got != tt.want {
				t.Errorf("first servers %s, want %s", got, tt.want)
			}
		})
	}
}

func TestLossAndReturnAreLoggedOnce(t *testing.T) {
	var lines bytes.Buffer
	a := &url.URL{Scheme: "https", Host: "a:6443"}
	u, err := New([]*url.URL{a}, "node", RoundRobin, &Credentials{}, Limits{}, slog.New(slog.NewTextHandler(&lines, nil)), NewMetrics(prometheus.NewRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	health, now := u.servers[0].health, time.Now()
	for range 3 {
		health.open(now, errors.New("connection refused"), nil)
	}
	for range 3 {
		health.close(now.Add(7*time.Second), "", nil)
	}
	log := lines.String()
	if strings.Count(log, "cannot be reached") != 1 || strings.Count(log, "answers again") != 1 ||
		!strings.Contains(log, "after=7s") || !strings.Contains(log, "apiserver=a:6443") {
		t.Errorf("log:\n%s", log)
	}
}

func TestAStarvedHubSaysSoOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		registry := prometheus.NewRegistry()
		a := &url.URL{Scheme: "https", Host: "a:6443"}
		u, err := New([]*url.URL{a}, "node", RoundRobin, &Credentials{}, Limits{}, slog.New(slog.NewTextHandler(&lines, nil)), NewMetrics(registry))
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			u.servers[0].Starved(3 * time.Second)
			time.Sleep(2 * time.Second)
		}
		if n := strings.Count(lines.String(), "too little CPU"); n != 2 || !strings.Contains(lines.String(), "apiserver=a:6443 silence=3s") {
			t.Errorf("%d lines:\n%s", n, &lines)
		}
		if n := testutil.ToFloat64(u.servers[0].starved); n != 50 || u.servers[0].Down() != nil {
			t.Errorf("counted %v times; down: %v", n, u.servers[0].Down())
		}
	})
}
