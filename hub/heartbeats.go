package hub

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// reportWithin is how long a heartbeat waits: kubelet gives up on one after ten seconds, and a node whose heartbeats stay out
	// loses more than what the cloud does not know.
	reportWithin = 5 * time.Second
	// reportEvery is how often heartbeats wait: a PATCH takes a moment until the watch of pods shows it.
	reportEvery = 10 * time.Second
)

// heartbeats passes on the node's heartbeats after the upgrades in place that the cloud lacks are reported to it: from the first one
// after an outage on, its controllers act on the node's pods again.
type heartbeats struct {
	next     http.RoundTripper
	node     string // its name
	cloud    *cloud
	upgrades *upgrades
	log      *slog.Logger

	mu     sync.Mutex // held while they are reported, so that no heartbeat passes meanwhile
	last   time.Time  // when that ended
	failed string     // why it failed then, or ""
}

// RoundTrip implements http.RoundTripper.
func (h *heartbeats) RoundTrip(r *http.Request) (*http.Response, error) {
	if !h.upgrades.inPlace.Idle() && h.isHeartbeat(r) && isNode(r.Context()) && !h.cloud.isAway() && len(h.upgrades.inPlace.Unreconciled()) > 0 {
		h.report(r.Context())
	}
	return h.next.RoundTrip(r)
}

func (h *heartbeats) isHeartbeat(r *http.Request) bool {
	switch r.URL.Path {
	case "/apis/coordination.k8s.io/v1/namespaces/" + corev1.NamespaceNodeLease + "/leases/" + h.node:
		return r.Method == http.MethodPut || r.Method == http.MethodPatch
	case "/api/v1/nodes/" + h.node, "/api/v1/nodes/" + h.node + "/status":
		return r.Method == http.MethodPut || r.Method == http.MethodPatch
	}
	return false
}

func (h *heartbeats) report(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.last) < reportEvery {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportWithin)
	defer cancel()
	err := h.cloud.binding.AwaitMaySend(ctx) // heartbeats do not wait for that
	if err == nil {
		h.upgrades.inPlace.Offer()
		err = h.upgrades.reporter.Now(ctx, h.upgrades.inPlace.Report)
	}
	failed := ""
	if err != nil {
		failed = err.Error()
	}
	if failed != "" && failed != h.failed { // some last for hours, as a refusal by a webhook
		h.log.Warn("upgrades in place could not be reported before a heartbeat; it is tried again with the next ones", "err", failed)
	}
	h.last, h.failed = time.Now(), failed
}
