package upstream

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are an Upstream's. Their only label is the apiserver, of those named
// at start.
type Metrics struct {
	serverUp   *prometheus.GaugeVec
	lastChange *prometheus.GaugeVec
	refused    *prometheus.GaugeVec
	starved    *prometheus.CounterVec
}

// NewMetrics registers an Upstream's metrics on r. It panics if they are there
// already, as prometheus.MustRegister does.
func NewMetrics(r prometheus.Registerer) *Metrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"apiserver"})
		r.MustRegister(g)
		return g
	}
	starved := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "edgehub_upstream_starved_total",
		Help: "How often silence of this apiserver was not taken for its loss, because the hub itself got too little CPU to hear an answer, or was suspended.",
	}, []string{"apiserver"})
	r.MustRegister(starved)
	return &Metrics{
		starved: starved,
		serverUp: gauge("edgehub_upstream_up",
			"1 if this apiserver can be reached, 0 if not."),
		lastChange: gauge("edgehub_upstream_last_change_timestamp_seconds",
			"When this apiserver was lost or came back last, or else when the hub started, as Unix time."),
		refused: gauge("edgehub_upstream_credentials_refused",
			"1 while this apiserver refuses the node's credentials, or the node has none yet: the node is then served from the cache."),
	}
}

// setGauges records that the apiserver is up or down since a time.
func (s *server) setGauges(up bool, since time.Time) {
	s.lastChange.Set(float64(since.UnixMilli()) / 1000)
	if up {
		s.up.Set(1)
	} else {
		s.up.Set(0)
	}
}
