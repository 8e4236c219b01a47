package controller

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// queueMetrics are those of client-go's workqueues, under the names that
// dashboards of Kubernetes components know. There is one queue, so the name it
// passes to each method is always Name.
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
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_" + name, Help: help}, []string{"name"})
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "workqueue_" + name, Help: help}, []string{"name"})
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "workqueue_" + name, Help: help,
			Buckets: prometheus.ExponentialBuckets(1e-4, 10, 8), // 0.1 ms to 1000 s
		}, []string{"name"})
	}
	return &queueMetrics{
		depth:      gauge("depth", "DaemonSets that wait for a worker."),
		adds:       counter("adds_total", "DaemonSets put into the queue."),
		latency:    histogram("queue_duration_seconds", "How long a DaemonSet waited for a worker."),
		duration:   histogram("work_duration_seconds", "How long a worker took for a DaemonSet."),
		unfinished: gauge("unfinished_work_seconds", "Sum of how long the workers have been at what they have not finished."),
		longest:    gauge("longest_running_processor_seconds", "How long the slowest worker has been at what it has not finished."),
		retries:    counter("retries_total", "DaemonSets put back after a failure."),
	}
}

func (m *queueMetrics) register(r prometheus.Registerer) error {
	var errs []error
	for _, c := range []prometheus.Collector{m.depth, m.adds, m.latency, m.duration, m.unfinished, m.longest, m.retries} {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
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
