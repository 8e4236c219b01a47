package transform

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	active  *prometheus.GaugeVec
	objects *prometheus.CounterVec
}

// newMetrics returns the metrics. Each transform that is on has a value of 1.
func newMetrics(r prometheus.Registerer, transforms []Transform) *metrics {
	m := &metrics{
		active: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "edgehub_transform_active",
			Help: "1 for each transform of --transforms that is on, and for that of --cluster-ip=always.",
		}, []string{"transform"}),
		objects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edgehub_transform_objects_total",
			Help: "Objects that were transformed or left out, or (result error) could not be: what the node itself reads becomes an error then, and what a filter of Services is for passes unchanged.",
		}, []string{"transform", "result"}),
	}
	for _, t := range transforms {
		if t.pods != nil {
			continue // nobody has turned it on: it counts once it changes something
		}
		m.active.WithLabelValues(t.Name).Set(1)
		m.objects.WithLabelValues(t.Name, "ok")
		m.objects.WithLabelValues(t.Name, "error")
	}
	r.MustRegister(m.active, m.objects)
	return m
}

func (m *metrics) applied(t *Transform) { m.objects.WithLabelValues(t.Name, "ok").Inc() }
func (m *metrics) failed(t *Transform)  { m.objects.WithLabelValues(t.Name, "error").Inc() }
