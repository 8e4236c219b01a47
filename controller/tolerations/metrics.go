package tolerations

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/controller/podclient"
)

// States of a node in the metrics.
const (
	stateApplied  = "applied"
	statePending  = "pending" // pods are yet to be changed, or cannot be, or none stays
	stateInvalid  = "invalid"
	stateReleased = "released"
)

func states() []string { return []string{stateApplied, statePending, stateInvalid, stateReleased} }

// Metrics are those of a Controller. They count nodes when they are collected. They are safe for concurrent use.
type Metrics struct {
	patches *prometheus.CounterVec
	nodes   *prometheus.Desc
	longest *prometheus.Desc
	running atomic.Pointer[Controller] // nil while none runs
}

var _ prometheus.Collector = (*Metrics)(nil)

// NewMetrics returns metrics that are not registered yet.
func NewMetrics() *Metrics {
	return &Metrics{
		patches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edgehub_controller_autonomy_patches_total",
			Help: "Patches of the tolerations of pods for the autonomy of their node, by result: success, gone, conflict or error.",
		}, []string{"result"}),
		nodes: prometheus.NewDesc("edgehub_controller_autonomy_nodes",
			"Nodes whose pods stay while they are away, by state: "+strings.Join(states(), ", ")+".", []string{"state"}, nil),
		longest: prometheus.NewDesc("edgehub_controller_autonomy_longest_outage_seconds",
			"How long the node has been away that has been away for the longest, of those whose pods stay; 0 if none is away.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	m.patches.Describe(out)
	out <- m.nodes
	out <- m.longest
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	m.patches.Collect(out)
	counts, longest := map[string]int{}, time.Duration(0)
	if c := m.running.Load(); c != nil {
		counts, longest = c.count(time.Now())
	}
	for _, state := range states() {
		out <- prometheus.MustNewConstMetric(m.nodes, prometheus.GaugeValue, float64(counts[state]), state)
	}
	out <- prometheus.MustNewConstMetric(m.longest, prometheus.GaugeValue, longest.Seconds())
}

// patched counts the answer to a patch.
func (m *Metrics) patched(err error) { m.patches.WithLabelValues(podclient.ResultOf(err)).Inc() }

// count returns how many nodes are in each state, and for how long one has been away at most whose pods stay.
func (c *Controller) count(now time.Time) (counts map[string]int, longest time.Duration) {
	counts = map[string]int{}
	for _, o := range c.nodes.GetStore().List() {
		n, ok := o.(*corev1.Node)
		if !ok {
			continue
		}
		s, invalid := c.Fleet.SettingOf(n)
		condition := autonomy.ConditionOf(n)
		switch {
		case s.Released():
			counts[stateReleased]++
			continue
		case invalid != nil:
			counts[stateInvalid]++
		case !s.On:
			continue
		case condition != nil && condition.Reason == autonomy.ReasonApplied:
			counts[stateApplied]++
		default:
			counts[statePending]++
		}
		if since, away := autonomy.AwaySince(n); away {
			longest = max(longest, now.Sub(since))
		}
	}
	return counts, longest
}
