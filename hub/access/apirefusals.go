package access

import (
	"context"
	"net/http"
	"time"

	"github.com/edgehub-io/edgehub/ota/api"
)

// SlowDown passes requests to the node's HTTP API to next, those of a client that has had too many refused when that is
// paid, as [Refused] says. It is this late, and not when a connection is read, so that it knows whose they are: the
// browsers of a user are a client of their own, since any website may have an old one ask for what there is not, and health
// and metrics are for everybody. The node's own programs do not wait, nor do those that were not found: they may be anybody's.
func SlowDown(next http.Handler, isBrowser func(*http.Request) bool) http.Handler {
	debts := newDebts()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := limitedOf(r.Context())
		isExempt := conn == nil || isForAll(r.URL.Path)
		peer := ""
		if !isExempt {
			isExempt, peer = conn.who() // before the answer: a client that is gone is not found
		}
		if isExempt || peer == unfound || peer == anyLocal {
			next.ServeHTTP(w, r)
			return
		}
		if isBrowser(r) {
			peer += ", in a browser"
		}
		if wait := debts.refusals.Owe(peer, 0, longestDebt); wait > 0 {
			select {
			case <-time.After(wait):
			case <-r.Context().Done():
				panic(http.ErrAbortHandler) // the client has disconnected, perhaps in order not to wait
			}
		}
		to := &codeWriter{ResponseWriter: w}
		next.ServeHTTP(to, r)
		isRefused := to.code >= http.StatusBadRequest && to.code < http.StatusInternalServerError
		if isRefused && debts.refuse(peer) && conn.of.logLimit.allow(peer, time.Now()) {
			conn.of.log.Warn("so many requests of a client to the node's HTTP API are refused that it waits for its answers; see what it asks for, and mend or end it",
				"peer", peer, "remote", conn.RemoteAddr())
		}
	})
}

// isForAll reports whether everybody may read a path of the node's HTTP API, containers too.
func isForAll(path string) bool {
	return path == api.Healthz || path == api.Readyz || path == api.Metrics
}

// limitedOf returns the connection of a request's context, or nil if it is not one of a Listener.
func limitedOf(ctx context.Context) *limitedConn {
	conn, ok := ctx.Value(connKey{}).(*clientConn)
	if !ok {
		return nil
	}
	limited, _ := conn.Conn.(*limitedConn)
	return limited
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
