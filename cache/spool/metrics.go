package spool

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the spool's. Label values are the constants below.
type metrics struct {
	events, bytes     prometheus.Gauge
	added             prometheus.Counter
	replayed, dropped *prometheus.CounterVec
}

const (
	resultCreated = "created"
	resultExists  = "exists"
	resultRefused = "refused"
	resultFailed  = "failed"

	reasonFull       = "full"
	reasonQuota      = "quota"
	reasonRestart    = "restart"
	reasonUnreadable = "unreadable"
)

// newMetrics registers the metrics on r, if that is not nil.
func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	return &metrics{
		events: f.NewGauge(prometheus.GaugeOpts{
			Name: "edgehub_event_spool_events",
			Help: "Events that were posted while the cloud was away and wait to be sent.",
		}),
		bytes: f.NewGauge(prometheus.GaugeOpts{
			Name: "edgehub_event_spool_bytes",
			Help: "Bytes of the events that wait to be sent.",
		}),
		added: f.NewCounter(prometheus.CounterOpts{
			Name: "edgehub_event_spool_added_total",
			Help: "Events that were taken while the cloud was away.",
		}),
		replayed: f.NewCounterVec(prometheus.CounterOpts{
			Name: "edgehub_event_spool_replayed_total",
			Help: "Events that were sent afterwards, by what the apiserver said: created, exists, refused, or failed again and again.",
		}, []string{"result"}),
		dropped: f.NewCounterVec(prometheus.CounterOpts{
			Name: "edgehub_event_spool_dropped_total",
			Help: "Events that were not spooled (full) or not sent (quota: dropped for those of users with fewer; restart: posted with a token, and the hub was restarted; unreadable: damaged on disk).",
		}, []string{"reason"}),
	}
}
