package tolerations

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/controller/podclient"
)

// Metrics are those of a Controller.
type Metrics struct{ patches *prometheus.CounterVec }

// NewMetrics returns metrics that are not registered yet.
func NewMetrics() *Metrics {
	return &Metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "edgehub_controller_autonomy_patches_total",
		Help: "Patches of the tolerations of pods for the autonomy of their node, by result: success, gone, conflict or error.",
	}, []string{"result"})}
}

// Collector returns the metrics for a registry.
func (m *Metrics) Collector() prometheus.Collector { return m.patches }

// patched counts the answer to a patch.
func (m *Metrics) patched(err error) { m.patches.WithLabelValues(podclient.ResultOf(err)).Inc() }
