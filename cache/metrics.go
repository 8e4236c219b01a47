package cache

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// metrics are the metrics of the cache. Label values come from fixed sets, except resources,
// which clients have read through this hub.
type metrics struct {
	all           *prometheus.Registry
	offline       *prometheus.CounterVec
	nodePatches   *prometheus.CounterVec
	commits       *prometheus.CounterVec
	commitSeconds prometheus.Histogram
	expired       prometheus.Counter
	storeUp       prometheus.Gauge
	damaged       prometheus.Counter
	evictions     prometheus.Counter
}

// opened records the result of opening the file.
func (m *metrics) opened(err error) {
	if m.storeUp.Set(1); err != nil {
		m.storeUp.Set(0)
	}
}

// committed records the result of a commit.
func (m *metrics) committed(took time.Duration, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.commits.WithLabelValues(result).Inc()
	m.commitSeconds.Observe(took.Seconds())
}

// newMetrics returns the metrics in a registry of their own: Open registers them once it has not failed.
func newMetrics() *metrics {
	all := prometheus.NewRegistry()
	auto := promauto.With(all)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		all: all,
		offline: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "edgehub_cache_requests_total",
			Help: "Requests that could not be sent to the cloud, by resource, and whether the cache had an answer (hit) or not (miss).",
		}, []string{"resource", "result"}),
		commits: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "edgehub_cache_commits_total",
			Help: "Writes of the cache to disk, by result (ok, error). Each that is ok costs the disk one sync.",
		}, []string{"result"}),
		commitSeconds: auto.NewHistogram(prometheus.HistogramOpts{
			Name:    "edgehub_cache_commit_seconds",
			Help:    "Time that writes of the cache to disk took.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		storeUp: auto.NewGauge(prometheus.GaugeOpts{
			Name: "edgehub_cache_store_up",
			Help: "1 if the cache's file is open, 0 if it cannot be opened and everything is kept in memory only.",
		}),
		expired: counter("edgehub_cache_watches_expired_total",
			"Watches that the hub ended with 410, so that their clients list again: an apiserver has forgotten their version, or what was kept of them is lost."),
		damaged: counter("edgehub_cache_damaged_files_total",
			"Damage that was found in the files of the cache: objects or values that could not be read, or changes that were lost."),
		evictions: counter("edgehub_cache_evictions_total",
			"Queries whose answers are kept no longer, to make room (--cache-max-bytes)."),
	}
	m.nodePatches = auto.NewCounterVec(prometheus.CounterOpts{
		Name: "edgehub_cache_node_patches_total",
		Help: "Patches of the node's Node by its CNI agents while the cloud was away: taken, and afterwards sent, or refused by the apiserver and dropped.",
	}, []string{"result"})
	for _, result := range []string{"taken", "sent", "refused"} {
		m.nodePatches.WithLabelValues(result)
	}
	for _, result := range []string{"ok", "error"} { // exported from the start, for alerts
		m.commits.WithLabelValues(result)
	}
	return m
}

// otherResource is the label of requests without a resource, and of misses of those that are not known.
const otherResource = "other"

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

var (
	descViews   = prometheus.NewDesc("edgehub_cache_views", "Queries whose answers are kept.", nil, nil)
	descObjects = prometheus.NewDesc("edgehub_cache_objects", "Objects in all views; one that is in two views counts twice.", nil, nil)
	descBytes   = prometheus.NewDesc("edgehub_cache_bytes", "Bytes of all views; an object that is in two views counts twice.", nil, nil)
	descFile    = prometheus.NewDesc("edgehub_cache_file_bytes", "Size of the cache's file.", nil, nil)
	descWritten = prometheus.NewDesc("edgehub_cache_commit_bytes_total",
		"Bytes that were written to the cache's files: for commits, when the log was written anew, and where what was removed was overwritten.", nil, nil)
	descPending = prometheus.NewDesc("edgehub_cache_pending_bytes", "Bytes that wait to be written to disk.", nil, nil)
)

// collect collects the gauges at each scrape.
func (c *Cache) collect(ch chan<- prometheus.Metric) {
	views := c.views.Describe()
	var objects, bytes int64
	for i := range views {
		objects, bytes = objects+int64(views[i].Objects), bytes+views[i].Bytes
	}
	gauge := func(d *prometheus.Desc, value int64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value))
	}
	gauge(descViews, int64(len(views)))
	gauge(descObjects, objects)
	gauge(descBytes, bytes)
	stats := c.disk.Stats()
	if stats.FileBytes > 0 {
		gauge(descFile, stats.FileBytes)
	}
	ch <- prometheus.MustNewConstMetric(descWritten, prometheus.CounterValue, float64(stats.WrittenBytes))
	gauge(descPending, stats.PendingBytes)
}
