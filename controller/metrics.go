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

const metricsPrefix = "edgehub_controller_"

// Values of the label state.
const (
	stateNeedsUpgrade = "needs_upgrade"
	stateUpToDate     = "up_to_date"
)

// metrics has two series for each DaemonSet that asks for OTA, one for each state
// of a node and one for images for one that asks for AdvancedRollingUpdate, and a
// handful besides.
type metrics struct {
	reconciles *prometheus.CounterVec
	patches    *prometheus.CounterVec
	deletions  *prometheus.CounterVec
	pods       *prometheus.GaugeVec
	nodes      *prometheus.GaugeVec
	images     *prometheus.GaugeVec
}

func newMetrics() *metrics {
	return &metrics{
		reconciles: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metricsPrefix + "reconciles_total",
			Help: "Reconciles of DaemonSets, by result: success, or error when it is retried with backoff.",
		}, []string{"result"}),
		patches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metricsPrefix + "pod_patches_total",
			Help: "Patches of the status of pods, by result: success, gone, conflict or error.",
		}, []string{"result"}),
		deletions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metricsPrefix + "pod_deletions_total",
			Help: "Pods deleted to be replaced, by result: success, gone, conflict or error.",
		}, []string{"result"}),
		nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: metricsPrefix + "rollout_nodes",
			Help: "Nodes that should run a DaemonSet with the strategy AdvancedRollingUpdate, by state: " + rolloutStates() + ".",
		}, []string{"namespace", "daemonset", "state"}),
		images: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: metricsPrefix + "rollout_nodes_awaiting_images",
			Help: "Nodes, of those pending, whose old pod is kept until the images of the new revision are there.",
		}, []string{"namespace", "daemonset"}),
		pods: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: metricsPrefix + "daemonset_pods",
			Help: "Pods of DaemonSets with the strategy OTA, by state: needs_upgrade or up_to_date.",
		}, []string{"namespace", "daemonset", "state"}),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	return errors.Join(r.Register(m.reconciles), r.Register(m.patches), r.Register(m.deletions),
		r.Register(m.pods), r.Register(m.nodes), r.Register(m.images))
}

func (m *metrics) reconciled(err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.reconciles.WithLabelValues(result).Inc()
}

func rolloutStates() string {
	var out []string
	for _, state := range rollout.States() {
		out = append(out, string(state))
	}
	return strings.Join(out, ", ")
}

func (m *metrics) patched(err error) { m.patches.WithLabelValues(resultOf(err)).Inc() }

func (m *metrics) deleted(err error) { m.deletions.WithLabelValues(resultOf(err)).Inc() }

func resultOf(err error) string {
	result := "error"
	switch {
	case err == nil:
		result = "success"
	case apierrors.IsNotFound(err):
		result = "gone"
	case podclient.IsConflict(err):
		result = "conflict"
	}
	return result
}

func (m *metrics) setPods(key cache.ObjectName, needUpgrade, upToDate int) {
	m.pods.WithLabelValues(key.Namespace, key.Name, stateNeedsUpgrade).Set(float64(needUpgrade))
	m.pods.WithLabelValues(key.Namespace, key.Name, stateUpToDate).Set(float64(upToDate))
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
