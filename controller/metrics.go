package controller

import (
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"

	"github.com/edgehub-io/edgehub/controller/podclient"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/status"
	"github.com/edgehub-io/edgehub/controller/workload"
)

// metrics has, for each workload with OTA, three series; for each with AdvancedRollingUpdate,
// one for each state of a node and one for images; and a few besides.
type metrics struct {
	reconciles *prometheus.CounterVec
	patches    *prometheus.CounterVec
	deletions  *prometheus.CounterVec
	pods       map[workload.Kind]*prometheus.GaugeVec
	nodes      *prometheus.GaugeVec
	images     *prometheus.GaugeVec
	// notReconciled has a series for each workload with such a pod.
	notReconciled *prometheus.GaugeVec
}

func newMetrics() *metrics {
	var states []string
	for _, state := range rollout.States() {
		states = append(states, string(state))
	}
	return &metrics{
		reconciles: newCounter("edgehub_controller_reconciles_total",
			"Reconciles of DaemonSets and StatefulSets, by result: success, or error when it is retried with backoff.", "result"),
		patches: newCounter("edgehub_controller_pod_patches_total",
			"Patches of pods and of their status, by result: success, gone, conflict or error.", "result"),
		deletions: newCounter("edgehub_controller_pod_deletions_total",
			"Pods deleted to be replaced, by result: success, gone, conflict or error.", "result"),
		nodes: newGauge("edgehub_controller_rollout_nodes",
			"Nodes that should run a DaemonSet with the strategy AdvancedRollingUpdate, or run an old pod of it, by state: "+strings.Join(states, ", ")+".",
			"namespace", "daemonset", "state"),
		images: newGauge("edgehub_controller_rollout_nodes_awaiting_images",
			"Nodes, of those pending, whose old pod is kept until the images of the new revision are there.",
			"namespace", "daemonset"),
		notReconciled: newGauge("edgehub_controller_unreconciled_pods",
			"Pods that were upgraded while the cloud was away, and that the cloud cannot give the images that they run; the condition PodOfflineUpgradeReconciled says why.",
			"namespace", "kind", "name"),
		pods: map[workload.Kind]*prometheus.GaugeVec{
			workload.DaemonSet: newGauge("edgehub_controller_daemonset_pods",
				"Pods of DaemonSets with the strategy OTA, by state: needs_upgrade, up_to_date, or rolled_back by the owners of their nodes.",
				"namespace", "daemonset", "state"),
			workload.StatefulSet: newGauge("edgehub_controller_statefulset_pods",
				"Pods of StatefulSets with the strategy OTA, by state: needs_upgrade, up_to_date, or rolled_back by the owners of their nodes.",
				"namespace", "statefulset", "state"),
		},
	}
}

func newCounter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func newGauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.reconciles, m.patches, m.deletions, m.pods[workload.DaemonSet], m.pods[workload.StatefulSet], m.nodes, m.images, m.notReconciled}
}

func register(r prometheus.Registerer, collectors []prometheus.Collector) error {
	var errs []error
	for _, c := range collectors {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}

func (m *metrics) reconciled(err error) { m.reconciles.WithLabelValues(resultOf(err)).Inc() }

func (m *metrics) patched(err error) { m.patches.WithLabelValues(podclient.ResultOf(err)).Inc() }

func (m *metrics) deleted(err error) { m.deletions.WithLabelValues(podclient.ResultOf(err)).Inc() }

func resultOf(err error) string {
	if err != nil {
		return "error"
	}
	return "success"
}

func (m *metrics) setPods(key key, p *status.MarkPlan) {
	pods := m.pods[key.kind]
	pods.WithLabelValues(key.Namespace, key.Name, "needs_upgrade").Set(float64(p.Need))
	pods.WithLabelValues(key.Namespace, key.Name, "up_to_date").Set(float64(p.UpToDate()))
	pods.WithLabelValues(key.Namespace, key.Name, "rolled_back").Set(float64(p.RolledBack))
}

// setNotReconciled shows nothing of a workload without such a pod: by far the most have never had one.
func (m *metrics) setNotReconciled(key key, pods int) {
	labels := []string{key.Namespace, string(key.kind), key.Name}
	if pods == 0 {
		m.notReconciled.DeleteLabelValues(labels...)
		return
	}
	m.notReconciled.WithLabelValues(labels...).Set(float64(pods))
}

func (m *metrics) forgetPods(key key) {
	m.setNotReconciled(key, 0)
	m.pods[key.kind].DeletePartialMatch(prometheus.Labels{"namespace": key.Namespace, key.kind.Lower(): key.Name})
}

func (m *metrics) setRollout(key key, p *rollout.Plan) {
	for _, state := range rollout.States() {
		m.nodes.WithLabelValues(key.Namespace, key.Name, string(state)).Set(float64(p.Counts[state]))
	}
	m.images.WithLabelValues(key.Namespace, key.Name).Set(float64(p.AwaitImages))
}

func (m *metrics) forgetRollout(key key) {
	m.nodes.DeletePartialMatch(prometheus.Labels{"namespace": key.Namespace, "daemonset": key.Name})
	m.images.DeleteLabelValues(key.Namespace, key.Name)
}

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
		depth:    newGauge("workqueue_depth", "DaemonSets and StatefulSets that wait for a worker.", "name"),
		adds:     newCounter("workqueue_adds_total", "DaemonSets and StatefulSets put into the queue.", "name"),
		latency:  histogram("workqueue_queue_duration_seconds", "How long a DaemonSet or StatefulSet waited for a worker."),
		duration: histogram("workqueue_work_duration_seconds", "How long a worker took for a DaemonSet or StatefulSet."),
		unfinished: newGauge("workqueue_unfinished_work_seconds",
			"Sum of how long the workers have been at what they have not finished.", "name"),
		longest: newGauge("workqueue_longest_running_processor_seconds",
			"How long the slowest worker has been at what it has not finished.", "name"),
		retries: newCounter("workqueue_retries_total", "DaemonSets and StatefulSets put back after a failure.", "name"),
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
