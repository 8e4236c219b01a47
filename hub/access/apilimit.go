package access

import (
	"fmt"
	"net/http"
	"time"

	"github.com/edgehub-io/edgehub/hub/csrf"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/proxy/limits"
)

const (
	// A peer may have apiRefusalsBurst requests to the node's HTTP API refused at once, and apiRefusalsRate more a second: a script
	// that tries again each second never comes near. Beyond it nothing is looked up for the peer.
	apiRefusalsBurst = 60
	apiRefusalsRate  = 5
)

// LimitRefusals answers peers with 429 of whose requests too many were refused, and passes others to next. The browsers of a user
// are a peer of their own: a page that they show must not keep out what its owner types. Callers that cannot be told apart
// are not limited. The server must use [Callers.ConnContext].
func LimitRefusals(next http.Handler, isBrowser func(*http.Request) bool) http.Handler {
	refusals := limits.NewCosts[string](apiRefusalsBurst, apiRefusalsRate)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer := PeerOf(r.Context())
		switch r.URL.Path {
		case nodeapi.Healthz, nodeapi.Readyz, nodeapi.Metrics:
			peer = ""
		}
		if peer == "" || peer == unknownLocal {
			next.ServeHTTP(w, r)
			return
		}
		if isBrowser(r) {
			peer += ", in a browser"
		}
		if !refusals.Spend(peer, 0) {
			csrf.Refuse(w, http.StatusTooManyRequests, fmt.Sprintf("too many requests of this caller (%s) were refused: try again in a second", peer))
			return
		}
		to := &codeWriter{ResponseWriter: w}
		next.ServeHTTP(to, r)
		if to.code >= http.StatusBadRequest && to.code < http.StatusInternalServerError {
			refusals.Owe(peer, 1, time.Second)
		}
	})
}

// codeWriter remembers the code of an answer.
type codeWriter struct {
	http.ResponseWriter
	code int
}

func (w *codeWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (w *codeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
