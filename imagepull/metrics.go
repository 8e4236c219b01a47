package imagepull

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/ota/api"
)

// metrics counts pulls by their results, and exposes the queue.
type metrics struct {
	pulls   *prometheus.CounterVec
	seconds prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, q *queue) (*metrics, error) {
	m := &metrics{
		pulls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edgehub_imagepull_pulls_total",
			Help: "Attempts to pull an image ahead of an upgrade, by result: Ready, Cancelled, or the reason of a failure.",
		}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "edgehub_imagepull_duration_seconds",
			Help:    "How long attempts took that ended with the image on the node.",
			Buckets: prometheus.ExponentialBuckets(0.25, 4, 9), // 0.25 s to 4.5 h
		}),
	}
	if r == nil {
		return m, nil
	}
	if err := errors.Join(r.Register(m.pulls), r.Register(m.seconds), r.Register(queueCollector{q})); err != nil {
		return nil, fmt.Errorf("register metrics of image pulls: %w", err)
	}
	return m, nil
}

// CountBytes registers the counter of bytes fetched from registries, and returns the function that
// adds to it, which is safe for concurrent use. r may be nil.
func CountBytes(r prometheus.Registerer) (func(bytes int), error) {
	counter := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "edgehub_imagepull_bytes_total",
		Help: "Bytes fetched from registries to pull images ahead of an upgrade.",
	})
	if r != nil {
		if err := r.Register(counter); err != nil {
			return nil, fmt.Errorf("register metrics of image pulls: %w", err)
		}
	}
	return func(bytes int) { counter.Add(float64(bytes)) }, nil
}

// pulled counts one attempt.
func (m *metrics) pulled(result string, took time.Duration) {
	m.pulls.WithLabelValues(result).Inc()
	if result == string(api.Ready) {
		m.seconds.Observe(took.Seconds())
	}
}

var queueDesc = prometheus.NewDesc("edgehub_imagepull_images",
	"Images that are wanted ahead of an upgrade, by state: Queued, Pulling, Ready or Failed.", []string{"state"}, nil)

// queueCollector counts the images in the queue when metrics are collected.
type queueCollector struct{ queue *queue }

func (queueCollector) Describe(out chan<- *prometheus.Desc) { out <- queueDesc }

func (c queueCollector) Collect(out chan<- prometheus.Metric) {
	count := c.queue.count()
	for _, s := range []api.PullState{api.Queued, api.Pulling, api.Ready, api.Failed} {
		out <- prometheus.MustNewConstMetric(queueDesc, prometheus.GaugeValue, float64(count[s]), string(s))
	}
}
