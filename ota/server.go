// Package ota is a node's HTTP API for its owner: is the hub healthy, which pods does the node
// run, pull the images of a pod's next revision, upgrade the pod now or later, hold it, and take it back to
// an earlier revision.
//
// New returns an http.Handler, which is safe for concurrent use and starts nothing. Its only
// state is one lock for each running upgrade, and how many callers watch the pods, until Drain ends that. It
// does not authenticate callers: whoever serves it beyond loopback has to.
//
// An upgrade that begins later passes the checks of one that begins now, waits in a Queue, and is carried
// out by API.Upgrade, which repeats all checks.
//
// A success is answered with 200, or with 202 if it begins later, and an error with one line of text:
// what happened, to which pod, and what to do next. All texts end with a newline but those of healthz and
// readyz, which are byte for byte YurtHub's.
package ota

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/nodepods"
)

// Options are the options of New. Its functions and interfaces must be safe for concurrent use.
type Options struct {
	// NodeName is the name of the node. Required.
	NodeName string
	// Pods reads and deletes pods with the node's identity. Required.
	Pods *Pods
	// Followed are the pods of this node as they are followed. Nil means that GET /pods cannot be watched.
	Followed *nodepods.Pods
	// Ready returns nil if the hub can serve the node, and otherwise the reason. Nil means
	// always ready.
	Ready func() error
	// Offline describes since when the cloud cannot be reached; it is empty while the cloud can be
	// reached. Nil means never offline.
	Offline func() string
	// Trouble returns what is wrong with the hub's cache, or "": readyz adds it. By default nothing is.
	Trouble func() string
	// Unregistered returns that the cloud has no Node of this name, and what to do, or "": readyz has it, and no pod is deleted
	// for an upgrade, since none would come in its place. Nil means that there is one.
	Unregistered func() string
	// Cloud reports whether the node can use the cloud, and since when. Nil means always.
	Cloud func() (online bool, since time.Time)
	// Cache returns the state of the cache, for GET /debug/cache as JSON. Nil means that the path
	// does not exist.
	Cache func() any
	// ImagePulls pulls images ahead of upgrades. Nil means that this hub pulls none.
	ImagePulls ImagePulls
	// Queue has the upgrades that begin later. Nil means that there are none: POST upgrade is 503 while
	// the cloud is away.
	Queue Queue
	// NoQueueing has requests answered as without a Queue, whose upgrades can be seen and cancelled.
	NoQueueing bool
	// InPlace carries out upgrades while the cloud is away. Nil means that none is.
	InPlace InPlace
	// Bundles are the signed bundles of the node. Nil means that their path does not exist.
	Bundles Bundles
	// Holds are the holds of pods. Nil means that their paths do not exist.
	Holds Holds
	// Rollbacks has what there is to go back to. Nil means that its paths do not exist.
	Rollbacks Rollbacks
	// Deleted is called with each pod that was deleted for an upgrade. Nil means that nobody remembers.
	Deleted func(*corev1.Pod)
	// Metrics answers GET /metrics. Nil means that the path does not exist.
	Metrics http.Handler
	// Registerer registers this package's metrics. Nil registers none.
	Registerer prometheus.Registerer
	// Logger logs one line for each upgrade that is asked for. Nil logs nothing.
	Logger *slog.Logger
}

// server is the state that the handlers share. Its options do not change after New.
type server struct {
	Options
	pods      *nodePods
	refusals  refusalLog
	upgrades  *prometheus.CounterVec
	rollbacks *prometheus.CounterVec
	inFlight  podLocks
	watches   chan struct{}   // has an element for each watch of pods
	stopping  context.Context // ends with Drain
}

// API is the handler of the whole API, and what carries out the upgrades of a Queue.
type API struct {
	http.Handler
	server *server
	drain  context.CancelFunc
}

// Drain ends all watches of pods, and refuses new ones: the hub stops.
func (a *API) Drain() { a.drain() }

// New returns the API. It fails if a required option is missing, or if this package's metrics are
// registered already.
func New(o Options) (*API, error) {
	if o.NodeName == "" {
		return nil, errors.New("create node API: no node name")
	}
	if o.Pods == nil {
		return nil, errors.New("create node API: no client for pods")
	}
	if o.Ready == nil {
		o.Ready = func() error { return nil }
	}
	if o.Offline == nil {
		o.Offline = func() string { return "" }
	}
	if o.Trouble == nil {
		o.Trouble = func() string { return "" }
	}
	if o.Unregistered == nil {
		o.Unregistered = func() string { return "" }
	}
	if o.Cloud == nil {
		o.Cloud = func() (bool, time.Time) { return true, time.Time{} }
	}
	if o.Deleted == nil {
		o.Deleted = func(*corev1.Pod) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	upgrades, err := newCounter(o.Registerer, "edgehub_ota_upgrades_total",
		"Requests to upgrade a pod, by the HTTP status code of the answer; 499 is a caller that hung up.")
	if err != nil {
		return nil, err
	}
	rollbacks, err := newCounter(o.Registerer, "edgehub_ota_rollbacks_total",
		"Requests to go back to an earlier revision of a pod, by the HTTP status code of the answer.")
	if err != nil {
		return nil, err
	}
	stopping, drain := context.WithCancel(context.Background())
	offered := func(pod *corev1.Pod) *corev1.Pod { return pod }
	if o.Bundles != nil {
		offered = o.Bundles.Offered
	}
	s := &server{Options: o, pods: newNodePods(o.Pods, o.NodeName, offered), upgrades: upgrades, rollbacks: rollbacks, watches: make(chan struct{}, maxWatches), stopping: stopping}
	return &API{limitBody(s.routes()), s, drain}, nil
}

// routes matches paths as they were sent, neither cleaned nor decoded: mux would redirect a path
// such as //pods, and scripts do not follow redirects of a POST.
//
// Query parameters that a path does not have are refused, but for health and metrics: probes and scrapers may
// be configured to send some.
func (s *server) routes() http.Handler {
	r := mux.NewRouter().SkipClean(true).UseEncodedPath()
	r.Handle(api.Healthz, methods{http.MethodGet: s.healthz})
	r.Handle(api.Readyz, methods{http.MethodGet: s.readyz})
	r.Handle(api.Pods, methods{http.MethodGet: s.listPods})
	r.Handle(api.ImagePulls, methods{http.MethodGet: only(s.listPulls)})
	upgrade := methods{http.MethodPost: s.upgrade}
	if s.Queue != nil || s.Rollbacks != nil || s.InPlace != nil {
		upgrade[http.MethodGet], upgrade[http.MethodDelete] = ofPod(s.showUpgrade), ofPod(s.cancelUpgrade)
		r.Handle(api.Upgrades, methods{http.MethodGet: only(s.listUpgrades)})
	}
	r.Handle(api.UpgradePattern, upgrade)
	pull := methods{http.MethodPost: ofPod(s.requestPull, api.ImportedParam), http.MethodGet: ofPod(s.showPull, api.WatchParam), http.MethodDelete: ofPod(s.cancelPull)}
	if s.ImagePulls == nil {
		none := ofPod(noPulls, api.WatchParam, api.ImportedParam)
		pull = methods{http.MethodPost: none, http.MethodGet: none, http.MethodDelete: none}
	}
	r.Handle(api.ImagePullPattern, pull)
	if s.Bundles != nil {
		r.Handle(api.UpgradeBundles, methods{http.MethodPost: s.takeBundle, http.MethodGet: only(s.listBundles)})
	}
	if s.Holds != nil {
		r.Handle(api.HoldPattern, methods{http.MethodPost: ofPod(s.hold, api.ForParam, api.ReasonParam), http.MethodGet: ofPod(s.showHold), http.MethodDelete: ofPod(s.removeHold)})
	}
	if s.Rollbacks != nil {
		r.Handle(api.RollbackPattern, methods{http.MethodPost: s.rollback})
		r.Handle(api.HistoryPattern, methods{http.MethodGet: ofPod(s.showHistory)})
	}
	if s.Metrics != nil {
		r.Handle(api.Metrics, methods{http.MethodGet: func(w http.ResponseWriter, r *http.Request) error {
			s.Metrics.ServeHTTP(w, r)
			return nil
		}})
	}
	if s.Cache != nil {
		r.Handle(api.Cache, methods{http.MethodGet: only(func(w http.ResponseWriter, _ *http.Request) error {
			return writeJSON(w, s.Cache(), "  ")
		})})
	}
	r.NotFoundHandler = handler(unknownPath)
	return r
}

func (s *server) healthz(w http.ResponseWriter, _ *http.Request) error {
	return writeText(w, http.StatusOK, "OK")
}

func (s *server) readyz(w http.ResponseWriter, _ *http.Request) error {
	if err := s.Ready(); err != nil {
		return failf(http.StatusInternalServerError, "not ready: %w", err)
	}
	text := "OK"
	if offline := s.Offline(); offline != "" {
		text += ", " + offline
	}
	if missing := s.Unregistered(); missing != "" {
		text += "; " + missing
	}
	if trouble := s.Trouble(); trouble != "" {
		text += "; " + trouble
	}
	return writeText(w, http.StatusOK, text)
}

func unknownPath(_ http.ResponseWriter, r *http.Request) error {
	return failf(http.StatusNotFound,
		"no such path: %.200q; there are the owner's page at /, GET /pods, GET /v1/healthz, GET /v1/readyz, GET /metrics, GET /debug/cache, GET /openyurt.io/v1/apps, …/node, …/events, …/stream, …/bundle, …/imagepulls, …/upgrades and …/upgradebundles, POST /openyurt.io/v1/upgradebundles, POST /openyurt.io/v1/web/codes and …/web/tokens, POST, GET and DELETE /openyurt.io/v1/namespaces/{namespace}/pods/{pod}/upgrade, …/imagepull and …/hold, POST …/rollback, and GET …/history",
		r.URL.Path)
}
