package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// queueMetrics are those of client-go's workqueues, under the names that dashboards of
// Kubernetes components use. There is one queue, called Name.
type queueMetrics struct {
	depth      *prometheus.GaugeVec
	adds       *prometheus.CounterVec
	latency    *prometheus.HistogramVec
	duration   *prometheus.HistogramVec
	unfinished *prometheus.GaugeVec
	longest    *prometheus.GaugeVec
	retries    *prometheus.CounterVec
}

var _ workqueue.MetricsProvider = (*queueMetrics)(nil)

func newQueueMetrics() *queueMetrics {
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(1e-4, 10, 8), // 0.1 ms to 1000 s
		}, []string{"name"})
	}
	return &queueMetrics{
		depth:    newGauge("workqueue_depth", "DaemonSets that wait for a worker.", "name"),
		adds:     newCounter("workqueue_adds_total", "DaemonSets put into the queue.", "name"),
		latency:  histogram("workqueue_queue_duration_seconds", "How long a DaemonSet waited for a worker."),
		duration: histogram("workqueue_work_duration_seconds", "How long a worker took for a DaemonSet."),
		unfinished: newGauge("workqueue_unfinished_work_seconds",
			"Sum of how long the workers have been at what they have not finished.", "name"),
		longest: newGauge("workqueue_longest_running_processor_seconds",
			"How long the slowest worker has been at what it has not finished.", "name"),
		retries: newCounter("workqueue_retries_total", "DaemonSets put back after a failure.", "name"),
	}
}

func (m *queueMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.depth, m.adds, m.latency, m.duration, m.unfinished, m.longest, m.retries}
}

func (m *queueMetrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	return m.depth.WithLabelValues(name)
}

func (m *queueMetrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return m.adds.WithLabelValues(name)
}

func (m *queueMetrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return m.latency.WithLabelValues(name)
}

func (m *queueMetrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return m.duration.WithLabelValues(name)
}

func (m *queueMetrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.unfinished.WithLabelValues(name)
}

func (m *queueMetrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.longest.WithLabelValues(name)
}

func (m *queueMetrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return m.retries.WithLabelValues(name)
}
