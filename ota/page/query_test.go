package page

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/webtoken"
)

// What is misspelled must not be ignored. A browser may open the page by a link that has something in its query.
func TestUnknownParameters(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	p := New(Options{Tokens: webtoken.Open(filepath.Join(t.TempDir(), "tokens.json"), func(time.Time) bool { return true }, log), Logger: log})
	page := p.Wrap(http.NotFoundHandler())
	ask := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path+"?wacth=true", http.NoBody))
		return w
	}
	for _, path := range []string{api.Apps, api.Node, api.Events, api.Stream, api.Bundle} {
		if got := ask(http.MethodGet, path); got.Code != http.StatusBadRequest || got.Body.String() != "\"wacth\" is no parameter: there are none\n" {
			t.Errorf("GET %s: %d %s", path, got.Code, got.Body)
		}
	}
	for _, path := range []string{api.WebCodes, api.WebTokens} {
		if got := ask(http.MethodPost, path); got.Code != http.StatusBadRequest {
			t.Errorf("POST %s: %d %s", path, got.Code, got.Body)
		}
	}
	for path := range files() {
		if got := ask(http.MethodGet, path); got.Code != http.StatusOK {
			t.Errorf("GET %s: %d %s", path, got.Code, got.Body)
		}
	}
}
