package access

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/hub/csrf"
	"github.com/edgehub-io/edgehub/hub/peer"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

// APICallers keeps containers from the node's HTTP API, which shows and upgrades pods with
// the node's identity. Programs outside of containers may use it, as any user. Health and
// metrics are for everybody.
type APICallers struct {
	peers    *peer.Peers // nil: callers are not checked
	log      *slog.Logger
	refused  *prometheus.CounterVec
	logLimit *logLimit
}

// ForAPI returns the check for the node's HTTP API. It refuses nobody if containers may use
// the API, or if callers cannot be identified on this machine.
func (c *Callers) ForAPI(containersToo bool, r prometheus.Registerer) *APICallers {
	a := &APICallers{peers: c.peers, log: c.log, logLimit: newLogLimit(), refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "edgehub_api_callers_refused_total",
		Help: "Requests to the node's HTTP API that were refused since they came from a container, or from elsewhere, by what their caller is: not-local, container, or unknown.",
	}, []string{"reason"})}
	r.MustRegister(a.refused)
	for _, reason := range []peer.Reason{peer.NotLocal, peer.InContainer, peer.Unknown} {
		a.refused.WithLabelValues(string(reason))
	}
	if containersToo {
		a.peers = nil
	}
	return a
}

// Admit passes requests from outside of containers to next, and answers others with 403 and
// one line of text. The server must use [Callers.ConnContext].
func (a *APICallers) Admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.refuse(r); err != nil {
			csrf.Refuse(w, http.StatusForbidden, fmt.Sprintf("%v; this API is for programs outside of containers; to let those inside use it, start the hub with --serve-to-containers", err))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (a *APICallers) refuse(r *http.Request) error {
	switch r.URL.Path {
	case nodeapi.Healthz, nodeapi.Readyz, nodeapi.Metrics:
		return nil
	}
	if a.peers == nil {
		return nil
	}
	conn, ok := r.Context().Value(connKey{}).(*clientConn)
	if !ok {
		return errors.New("its connection is not known")
	}
	err := conn.check(a.peers.CheckAnyUser)
	var refusal *peer.Refusal
	if errors.As(err, &refusal) {
		a.refused.WithLabelValues(string(refusal.Reason)).Inc()
		if a.logLimit.allow(subject(refusal), time.Now()) {
			a.log.Warn("a caller may not use the node's HTTP API: it is in a container, or elsewhere; --serve-to-containers lets containers in",
				"reason", string(refusal.Reason), "remote", refusal.Remote, "uid", refusal.UID, "pid", refusal.PID, "comm", refusal.Comm,
				"pod", refusal.In.Pod, "container", refusal.In.ID, "cgroup", refusal.In.Group, "err", refusal.Err)
		}
	}
	return err
}
