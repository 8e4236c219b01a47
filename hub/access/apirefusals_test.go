package access

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/ota/api"
)

// Who has too many requests to the node's API refused waits; others, and what is for everybody, do not.
func TestWhoIsRefusedTooOftenAtTheAPIWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := SlowDown(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/refused":
				w.WriteHeader(http.StatusNotFound)
			case "/away":
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}), func(r *http.Request) bool { return r.URL.RawQuery == "browser" })
		of := &Listener{log: slog.New(slog.DiscardHandler), logLimit: newLogLimit()}
		from := func(isNode bool, peer string) context.Context {
			conn := &limitedConn{TCPConn: &net.TCPConn{}, of: of, who: func() (bool, string) { return isNode, peer }}
			return (&Callers{}).ConnContext(t.Context(), conn)
		}
		ask := func(ctx context.Context, path string) time.Duration {
			began := time.Now()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, path, http.NoBody))
			return time.Since(began)
		}
		bad, other := from(false, "user 65534"), from(false, "user 1000")
		for range refusalsBurst + 1 {
			if wait := ask(bad, "/refused"); wait != 0 {
				t.Fatalf("one of those it may have refused waits for %v", wait)
			}
		}
		if wait := ask(bad, "/"); wait == 0 {
			t.Error("one more does not wait")
		}
		for range refusalsBurst { // each waits until it is paid
			ask(bad, "/refused")
		}
		if wait := ask(other, "/"); wait != 0 {
			t.Errorf("another user's waits for %v", wait)
		}
		for _, path := range []string{api.Healthz, api.Readyz, api.Metrics, "/?browser"} {
			if wait := ask(bad, path); wait != 0 {
				t.Errorf("%s waits for %v", path, wait)
			}
		}
		if wait := ask(bad, "/"); wait == 0 {
			t.Error("what is exempt has paid")
		}
		for name, ctx := range map[string]context.Context{
			"the node's own": from(true, ""), "those that were not found": from(false, unfound), "those whose user is not known": from(false, anyLocal), "no connection": t.Context(),
		} {
			for range 2 * refusalsBurst {
				if wait := ask(ctx, "/refused"); wait != 0 {
					t.Fatalf("%s: a refused one waits for %v", name, wait)
				}
			}
		}
		for range refusalsBurst + 1 {
			ask(other, "/away")
			ask(other, "/away") // which says nothing of the caller
			ask(other, "/refused?browser")
		}
		if ask(other, "/?browser") == 0 || ask(other, "/") != 0 {
			t.Error("browsers do not count by themselves")
		}
		time.Sleep(longestDebt)
		if wait := ask(bad, "/"); wait != 0 {
			t.Errorf("after all is paid a request waits for %v", wait)
		}
	})
}

// A client that is gone is not served, and so gets nothing done without waiting.
func TestWhoOwesAndIsGoneIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := 0
		h := SlowDown(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			served++
			w.WriteHeader(http.StatusNotFound)
		}), func(*http.Request) bool { return false })
		conn := &limitedConn{TCPConn: &net.TCPConn{}, of: &Listener{log: slog.New(slog.DiscardHandler), logLimit: newLogLimit()}, who: func() (bool, string) { return false, "user 65534" }}
		ctx, gone := context.WithCancel((&Callers{}).ConnContext(t.Context(), conn))
		ask := func() {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", http.NoBody))
		}
		for range refusalsBurst + 1 {
			ask()
		}
		gone()
		defer func() {
			if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) || served != refusalsBurst+1 {
				t.Errorf("%v, and %d were served", err, served)
			}
		}()
		ask()
	})
}
