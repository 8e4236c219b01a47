package access

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/hub/csrf"
	"github.com/edgehub-io/edgehub/hub/peer"
	"github.com/edgehub-io/edgehub/ota/api"
)

// APICallers keeps containers from the node's HTTP API, which shows and upgrades pods with
// the node's identity. Programs outside of containers may use it, as any user. Health and
// metrics are for everybody.
type APICallers struct{ checker }

// ForAPI returns the check for the node's HTTP API. It refuses nobody if containers may use
// the API, or if callers cannot be identified on this machine.
func (c *Callers) ForAPI(containersToo bool, r prometheus.Registerer) *APICallers {
	a := &APICallers{newChecker(r, c.log, prometheus.CounterOpts{
		Name: "edgehub_api_callers_refused_total",
		Help: "Requests to the node's HTTP API that were refused since they came from a container, or from elsewhere, by what their caller is: not-local, container, or unknown.",
	}, peer.NotLocal, peer.InContainer, peer.Unknown)}
	if !containersToo {
		a.peers = c.peers
	}
	return a
}

// Admit passes requests from outside of containers to next, and answers others with 403 and
// one line of text. The server must use [Callers.ConnContext].
func (a *APICallers) Admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isForAll(r.URL.Path) {
			if err := a.refuse(r, a.peers.CheckAnyUser, a.warn); err != nil {
				csrf.Refuse(w, http.StatusForbidden, fmt.Sprintf("%v; this API is for programs outside of containers; to let those inside use it, start the hub with --serve-to-containers", err))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// isForAll reports whether everybody may read a path of the node's HTTP API, containers too.
func isForAll(path string) bool {
	return path == api.Healthz || path == api.Readyz || path == api.Metrics
}

func (a *APICallers) warn(_ peer.Conn, r *peer.Refusal) {
	a.log.Warn("a caller may not use the node's HTTP API: it is in a container, or elsewhere; --serve-to-containers lets containers in",
		"reason", string(r.Reason), "remote", r.Remote, "uid", r.UID, "pid", r.PID, "comm", r.Comm,
		"pod", r.In.Pod, "container", r.In.ID, "cgroup", r.In.Group, "err", r.Err)
}
