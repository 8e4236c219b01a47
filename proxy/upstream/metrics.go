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
}

// NewMetrics registers an Upstream's metrics on r. It panics if they are there
// already, as prometheus.MustRegister does.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		serverUp: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "edgehub_upstream_up",
			Help: "1 if this apiserver can be reached, 0 if not.",
		}, []string{"apiserver"}),
		lastChange: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "edgehub_upstream_last_change_timestamp_seconds",
			Help: "When this apiserver was lost or came back last, or else when the hub started, as Unix time.",
		}, []string{"apiserver"}),
		refused: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "edgehub_upstream_credentials_refused",
			Help: "1 while this apiserver refuses the node's credentials, or the node has none yet: the node is then served from the cache.",
		}, []string{"apiserver"}),
	}
	r.MustRegister(m.serverUp, m.lastChange, m.refused)
	return m
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
