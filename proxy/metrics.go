package proxy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the proxy's. All label values come from closed sets: verbs of the
// Kubernetes API, HTTP status codes, and the apiservers named at start.
type Metrics struct {
	requests   *prometheus.CounterVec
	inFlight   *prometheus.GaugeVec
	seconds    *prometheus.HistogramVec
	serverUp   *prometheus.GaugeVec
	lastChange *prometheus.GaugeVec
	refused    *prometheus.GaugeVec
}

// NewMetrics registers the proxy's metrics on r. It panics if they are there
// already, as prometheus.MustRegister does.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edgehub_proxy_requests_total",
			Help: "Requests of the node's clients, by verb and by the status code they were answered with; code 0 is a client that went away first.",
		}, []string{"verb", "code"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "edgehub_proxy_requests_in_flight",
			Help: "Requests that are being answered now, open watches among them.",
		}, []string{"verb"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "edgehub_proxy_response_header_seconds",
			Help:    "Time from a request's arrival to the header of its answer from upstream.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"verb"}),
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
	r.MustRegister(m.requests, m.inFlight, m.seconds, m.serverUp, m.lastChange, m.refused)
	return m
}

// knownVerbs are the verbs that requestinfo makes of HTTP methods it knows.
var knownVerbs = map[string]bool{
	"get": true, "list": true, "watch": true, "create": true, "update": true,
	"patch": true, "delete": true, "deletecollection": true, "proxy": true,
	"head": true, "options": true, "post": true, "put": true,
}

// verbLabel keeps methods that a client made up out of the metrics.
func verbLabel(verb string) string {
	if knownVerbs[verb] {
		return verb
	}
	return "other"
}

// report sets the two gauges of one apiserver.
func report(up, last prometheus.Gauge, isUp bool, at time.Time) {
	last.Set(float64(at.UnixMilli()) / 1000)
	if isUp {
		up.Set(1)
	} else {
		up.Set(0)
	}
}
