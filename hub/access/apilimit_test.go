package access

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A caller of whose requests too many are refused costs nothing more; others, and what is not refused, are served.
func TestTooManyRefusalsOfOneCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := 0
		h := LimitRefusals(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served++
			if r.URL.Path == "/refused" {
				w.WriteHeader(http.StatusNotFound)
			}
		}), func(r *http.Request) bool { return r.URL.RawQuery == "browser" })
		ask := func(who, path string) int {
			ctx := context.WithValue(t.Context(), connKey{}, &clientConn{name: func() string { return who }})
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, path, http.NoBody))
			if w.Code == http.StatusTooManyRequests && !strings.Contains(w.Body.String(), "too many requests of this caller ("+who+")") {
				t.Errorf("says %q", w.Body)
			}
			return w.Code
		}
		for range 1000 {
			if code := ask("user 0", "/"); code != http.StatusOK {
				t.Fatalf("one that is not refused: %d", code)
			}
		}
		served = 0
		for range 1000 {
			ask("user 65534", "/refused")
		}
		if served != apiRefusalsBurst {
			t.Errorf("%d of 1000 requests were looked at, want %d", served, apiRefusalsBurst)
		}
		if code := ask("user 65534", "/"); code != http.StatusTooManyRequests {
			t.Errorf("then one that would not be refused: %d", code)
		}
		if code := ask("user 65534", "/?browser"); code != http.StatusOK {
			t.Errorf("a page that the same user sees: %d", code)
		}
		for range 1000 {
			if code := ask(unknownLocal, "/refused"); code != http.StatusNotFound {
				t.Fatalf("one of callers that cannot be told apart: %d", code)
			}
		}
		if code := ask("user 1000", "/refused"); code != http.StatusNotFound {
			t.Errorf("another caller: %d", code)
		}
		time.Sleep(2 * time.Second)
		if code := ask("user 65534", "/"); code != http.StatusOK {
			t.Errorf("a second later: %d", code)
		}
	})
}
