package cache

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/store/writeback"
)

// metrics are the metrics of the cache. Label values come from fixed sets, except resources,
// which clients have read through this hub.
type metrics struct {
	offline       *prometheus.CounterVec
	commits       *prometheus.CounterVec
	commitSeconds prometheus.Histogram
	commitBytes   prometheus.Counter
	relists       prometheus.Counter
	storeUp       prometheus.Gauge
	damaged       prometheus.Counter
	evictions     prometheus.Counter
	spool         *prometheus.Registry // of package spool
}

// opened records the result of opening the store.
func (m *metrics) opened(s *store.Store, err error) {
	if err != nil {
		m.storeUp.Set(0)
		return
	}
	m.storeUp.Set(1)
	if cause := s.Recovery().Cause; cause != nil && !errors.Is(cause, store.ErrFormat) {
		m.damaged.Inc()
	}
}

// committed records the result of a commit.
func (m *metrics) committed(c writeback.CommitStats) {
	result := "ok"
	if c.Err != nil {
		result = "error"
	} else {
		m.commitBytes.Add(float64(c.Bytes))
	}
	m.commits.WithLabelValues(result).Inc()
	m.commitSeconds.Observe(c.Duration.Seconds())
}

func newMetrics() *metrics {
	return &metrics{
		spool: prometheus.NewRegistry(),
		offline: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edgehub_cache_requests_total",
			Help: "Requests that could not be sent to the cloud, by resource, and whether the cache had an answer (hit) or not (miss).",
		}, []string{"resource", "result"}),
		commits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edgehub_cache_commits_total",
			Help: "Writes of the cache to disk, by result (ok, error). Each that is ok costs the disk two syncs.",
		}, []string{"result"}),
		commitSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "edgehub_cache_commit_seconds",
			Help:    "Time that writes of the cache to disk took.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		commitBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "edgehub_cache_commit_bytes_total",
			Help: "Bytes of objects and their names that were written to disk.",
		}),
		relists: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "edgehub_cache_relists_total",
			Help: "Lists that the hub itself asked the cloud for, because a watch could not go on from where it was.",
		}),
		storeUp: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "edgehub_cache_store_up",
			Help: "1 if the cache's file is open, 0 if it cannot be opened and everything is kept in memory only.",
		}),
		damaged: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "edgehub_cache_damaged_files_total",
			Help: "Cache files that were found to be damaged and were moved aside; a snapshot or an empty file took their place.",
		}),
		evictions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "edgehub_cache_evictions_total",
			Help: "Queries whose answers are kept no longer, to make room (--cache-max-bytes).",
		}),
	}
}

// register registers the metrics, including the gauges of c.
func (m *metrics) register(r prometheus.Registerer, c *Cache) {
	for _, result := range []string{"ok", "error"} { // exported from the start, for alerts
		m.commits.WithLabelValues(result)
	}
	r.MustRegister(m.offline, m.commits, m.commitSeconds, m.commitBytes, m.relists, m.storeUp, m.damaged, m.evictions, m.spool, &gauges{cache: c})
}

// otherResource is the label of requests without a resource, and of further ones beyond
// maxResources.
const (
	otherResource = "other"
	maxResources  = 200
)

// answered counts an answer from the cache, or the lack of one.
func (m *metrics) answered(info *request.RequestInfo, err error) {
	resource, result := otherResource, "hit"
	if err != nil {
		result = "miss"
	}
	if info.IsResourceRequest && (err == nil || knownResource[info.Resource]) {
		resource = info.Resource
	}
	m.offline.WithLabelValues(resource, result).Inc()
}

// knownResource are the resources with a label of their own for misses. A resource that was
// never read may be any string from a client.
var knownResource = map[string]bool{
	"configmaps": true, "secrets": true, "pods": true, "nodes": true, "services": true, "endpoints": true,
	"endpointslices": true, "namespaces": true, "serviceaccounts": true, "events": true, "leases": true,
	"persistentvolumes": true, "persistentvolumeclaims": true, "csidrivers": true, "csinodes": true,
	"volumeattachments": true, "runtimeclasses": true, "daemonsets": true, "deployments": true,
	"replicasets": true, "statefulsets": true, "jobs": true, "networkpolicies": true, "customresourcedefinitions": true,
}

// gauges are collected from the cache at each scrape.
type gauges struct{ cache *Cache }

var (
	descViews   = prometheus.NewDesc("edgehub_cache_views", "Queries whose answers are kept.", nil, nil)
	descObjects = prometheus.NewDesc("edgehub_cache_objects", "Objects in all views; one that is in two views counts twice.", nil, nil)
	descBytes   = prometheus.NewDesc("edgehub_cache_bytes", "Bytes of all views; an object that is in two views counts twice.", nil, nil)
	descFile    = prometheus.NewDesc("edgehub_cache_file_bytes", "Size of the cache's file.", nil, nil)
	descPending = prometheus.NewDesc("edgehub_cache_pending_bytes", "Bytes that wait to be written to disk.", nil, nil)
)

func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descViews, descObjects, descBytes, descFile, descPending} {
		ch <- d
	}
}

func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	var count, objects, bytes int64
	for _, v := range g.cache.views.All() {
		if s, kept := v.State(); kept {
			count, objects, bytes = count+1, objects+int64(s.Objects), bytes+s.Bytes
		}
	}
	gauge := func(d *prometheus.Desc, value int64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value))
	}
	gauge(descViews, count)
	gauge(descObjects, objects)
	gauge(descBytes, bytes)
	s, w := g.cache.disk.Now()
	if stats, err := s.Stats(); err == nil {
		gauge(descFile, stats.FileBytes)
	}
	gauge(descPending, w.Pending())
}
