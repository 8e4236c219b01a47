// Package ota is the HTTP API that a node offers to its owner on loopback: is
// the hub well, which pods does this node run, pull the images of this one's next
// version, and upgrade it now.
//
// New checks its options and returns an http.Handler; it starts nothing and
// keeps nothing but one lock per upgrade in flight. The handler is safe for
// concurrent use. It asks nobody who they are: whoever serves it beyond loopback
// has to, first.
//
// A success answers 200. An error answers one line of text that says what
// happened, to which pod, and what to do next.
package ota

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

// Options is what New needs to know.
type Options struct {
	// NodeName is the node this API answers for. Required.
	NodeName string
	// Pods reads and deletes pods with the node's identity. Required.
	Pods *Pods
	// Ready returns nil once the hub can serve the node, and else the reason why
	// not, in words. It is called once per request, and must be safe for
	// concurrent use. Nil means always ready.
	Ready func() error
	// Offline says in words since when the cloud cannot be reached, and is empty
	// while it can. It must be safe for concurrent use. Nil means never.
	Offline func() string
	// Cache returns what is kept for the time without the cloud, to be shown as
	// JSON by GET /debug/cache. Nil leaves that path unknown.
	Cache func() any
	// ImagePulls pulls the images of upgrades ahead. Nil answers that this hub does
	// not.
	ImagePulls ImagePulls
	// Metrics answers GET /metrics. Nil leaves that path unknown.
	Metrics http.Handler
	// Registerer takes this package's metrics. Nil counts without publishing.
	Registerer prometheus.Registerer
	// Logger gets one line per upgrade asked for. Nil logs nothing.
	Logger *slog.Logger
}

// server holds what the handlers share; nothing in it changes after New.
type server struct {
	node     string
	pods     *Pods
	ready    func() error
	offline  func() string
	pulls    ImagePulls
	upgrades *prometheus.CounterVec
	log      *slog.Logger
	inFlight *podLocks
}

// New returns the handler of the whole API. It fails when a required option is
// missing, or when o.Registerer has metrics of this package already.
func New(o Options) (http.Handler, error) {
	if o.NodeName == "" {
		return nil, errors.New("create node API: no node name")
	}
	if o.Pods == nil {
		return nil, errors.New("create node API: no client for pods")
	}
	upgrades, err := newUpgradeCounter(o.Registerer)
	if err != nil {
		return nil, err
	}
	s := &server{
		node:     o.NodeName,
		pods:     o.Pods,
		ready:    o.Ready,
		offline:  o.Offline,
		pulls:    o.ImagePulls,
		upgrades: upgrades,
		log:      o.Logger,
		inFlight: newPodLocks(),
	}
	if s.ready == nil {
		s.ready = func() error { return nil }
	}
	if s.offline == nil {
		s.offline = func() string { return "" }
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return limitBody(s.routes(o.Metrics, o.Cache)), nil
}

// routes matches paths as they were sent: neither cleaned nor decoded, since mux
// would answer a path such as //pods with a redirect, and scripts do not follow
// those on a POST.
func (s *server) routes(metrics http.Handler, cache func() any) http.Handler {
	r := mux.NewRouter().SkipClean(true).UseEncodedPath()
	const pod = "/openyurt.io/v1/namespaces/{namespace}/pods/{pod}/"
	r.Handle(nodeapi.Healthz, methods{http.MethodGet: s.healthz})
	r.Handle(nodeapi.Readyz, methods{http.MethodGet: s.readyz})
	r.Handle(nodeapi.Pods, methods{http.MethodGet: s.listPods})
	r.Handle(nodeapi.ImagePulls, methods{http.MethodGet: s.listPulls})
	r.Handle(pod+"upgrade", methods{http.MethodPost: s.upgrade})
	r.Handle(pod+"imagepull", methods{http.MethodPost: s.requestPull, http.MethodGet: s.showPull, http.MethodDelete: s.cancelPull})
	if metrics != nil {
		r.Handle(nodeapi.Metrics, methods{http.MethodGet: func(w http.ResponseWriter, r *http.Request) error {
			metrics.ServeHTTP(w, r)
			return nil
		}})
	}
	if cache != nil {
		r.Handle(nodeapi.Cache, methods{http.MethodGet: func(w http.ResponseWriter, _ *http.Request) error {
			return writeIndented(w, cache())
		}})
	}
	r.NotFoundHandler = handler(unknownPath)
	return r
}

func (s *server) healthz(w http.ResponseWriter, _ *http.Request) error {
	return writeText(w, "OK")
}

func (s *server) readyz(w http.ResponseWriter, _ *http.Request) error {
	if err := s.ready(); err != nil {
		return failf(http.StatusInternalServerError, "not ready: %w", err)
	}
	if offline := s.offline(); offline != "" {
		return writeText(w, "OK, "+offline)
	}
	return writeText(w, "OK")
}

func unknownPath(_ http.ResponseWriter, r *http.Request) error {
	return failf(http.StatusNotFound,
		"no such path: %.200q; there are GET /pods, GET /v1/healthz, GET /v1/readyz, GET /metrics, GET /debug/cache, GET /openyurt.io/v1/imagepulls, POST /openyurt.io/v1/namespaces/{namespace}/pods/{pod}/upgrade, and POST, GET and DELETE /openyurt.io/v1/namespaces/{namespace}/pods/{pod}/imagepull",
		r.URL.Path)
}
