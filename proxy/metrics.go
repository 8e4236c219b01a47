package proxy

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the proxy's. All label values come from closed sets: verbs of the
// Kubernetes API and HTTP status codes.
type Metrics struct {
	requests *prometheus.CounterVec
	inFlight *prometheus.GaugeVec
	seconds  *prometheus.HistogramVec
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
	}
	r.MustRegister(m.requests, m.inFlight, m.seconds)
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
