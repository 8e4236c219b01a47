package controller

import (
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/edgehub-io/edgehub/controller/podclient"
	"github.com/edgehub-io/edgehub/controller/rollout"
)

// metrics has, for each DaemonSet with OTA, two series; for each with AdvancedRollingUpdate,
// one for each state of a node and one for images; and a few besides.
type metrics struct {
	reconciles *prometheus.CounterVec
	patches    *prometheus.CounterVec
	deletions  *prometheus.CounterVec
	pods       *prometheus.GaugeVec
	nodes      *prometheus.GaugeVec
	images     *prometheus.GaugeVec
}

func newMetrics() *metrics {
	var states []string
	for _, state := range rollout.States() {
		states = append(states, string(state))
	}
	return &metrics{
		reconciles: newCounter("edgehub_controller_reconciles_total",
			"Reconciles of DaemonSets, by result: success, or error when it is retried with backoff.", "result"),
		patches: newCounter("edgehub_controller_pod_patches_total",
			"Patches of the status of pods, by result: success, gone, conflict or error.", "result"),
		deletions: newCounter("edgehub_controller_pod_deletions_total",
			"Pods deleted to be replaced, by result: success, gone, conflict or error.", "result"),
		nodes: newGauge("edgehub_controller_rollout_nodes",
			"Nodes that should run a DaemonSet with the strategy AdvancedRollingUpdate, by state: "+strings.Join(states, ", ")+".",
			"namespace", "daemonset", "state"),
		images: newGauge("edgehub_controller_rollout_nodes_awaiting_images",
			"Nodes, of those pending, whose old pod is kept until the images of the new revision are there.",
			"namespace", "daemonset"),
		pods: newGauge("edgehub_controller_daemonset_pods",
			"Pods of DaemonSets with the strategy OTA, by state: needs_upgrade or up_to_date.",
			"namespace", "daemonset", "state"),
	}
}

func newCounter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func newGauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.reconciles, m.patches, m.deletions, m.pods, m.nodes, m.images}
}

func register(r prometheus.Registerer, collectors []prometheus.Collector) error {
	var errs []error
	for _, c := range collectors {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}

func (m *metrics) reconciled(err error) { m.reconciles.WithLabelValues(resultOf(err)).Inc() }

func (m *metrics) patched(err error) { m.patches.WithLabelValues(answerOf(err)).Inc() }

func (m *metrics) deleted(err error) { m.deletions.WithLabelValues(answerOf(err)).Inc() }

func resultOf(err error) string {
	if err != nil {
		return "error"
	}
	return "success"
}

// answerOf is the result of one request for a pod.
func answerOf(err error) string {
	switch {
	case apierrors.IsNotFound(err):
		return "gone"
	case podclient.IsConflict(err):
		return "conflict"
	default:
		return resultOf(err)
	}
}

func (m *metrics) setPods(key cache.ObjectName, needUpgrade, upToDate int) {
	m.pods.WithLabelValues(key.Namespace, key.Name, "needs_upgrade").Set(float64(needUpgrade))
	m.pods.WithLabelValues(key.Namespace, key.Name, "up_to_date").Set(float64(upToDate))
}

func (m *metrics) forgetPods(key cache.ObjectName) {
	m.pods.DeletePartialMatch(prometheus.Labels{"namespace": key.Namespace, "daemonset": key.Name})
}

func (m *metrics) setRollout(key cache.ObjectName, p *rollout.Plan) {
	for _, state := range rollout.States() {
		m.nodes.WithLabelValues(key.Namespace, key.Name, string(state)).Set(float64(p.Counts[state]))
	}
	m.images.WithLabelValues(key.Namespace, key.Name).Set(float64(p.AwaitImages))
}

func (m *metrics) forgetRollout(key cache.ObjectName) {
	m.nodes.DeletePartialMatch(prometheus.Labels{"namespace": key.Namespace, "daemonset": key.Name})
	m.images.DeleteLabelValues(key.Namespace, key.Name)
}
