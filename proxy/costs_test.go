package proxy

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/edgehub-io/edgehub/proxy/limits"
)

// refusing is an apiserver that knows the tokens good and good2, and treats others as k8s.io/apiserver
// does (endpoints/filters/authentication.go): 401, or no name, and GOAWAY. It has no upgrades.
// connections counts those that carry requests.
func refusing(connections *atomic.Int64) http.HandlerFunc {
	var known sync.Map
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := known.LoadOrStore(r.RemoteAddr, true); !ok {
			connections.Add(1)
		}
		token := r.Header.Get("Authorization")
		good, bad := strings.HasPrefix(token, "Bearer good"), token == "Bearer bad"
		if r.ProtoMajor == 2 && !good && token != "" {
			w.Header().Set("Connection", "close")
		}
		switch {
		case bad:
			w.WriteHeader(http.StatusUnauthorized)
		case r.Header.Get("Upgrade") != "":
			w.WriteHeader(http.StatusForbidden)
		}
	}
}

func TestConnectionsUpstreamAreNotUsedUp(t *testing.T) {
	const requests, burst = 30, 5
	token := func(value string) http.Header { return http.Header{"Authorization": {value}} }
	upgrade := func(token, protocol string) http.Header {
		return http.Header{"Authorization": {"Bearer " + token}, "Connection": {"Upgrade"}, "Upgrade": {protocol}}
	}
	for name, tt := range map[string]struct {
		header http.Header
		path   string
		code   int // of the first answer
		most   int64
		rest   int // requests that are not answered with 429
	}{
		"by tokens that the apiserver refuses":           {token("Bearer bad"), "/api", 401, burst + 1, burst},
		"by credentials that are none to the apiserver":  {token("Basic eDp5"), "/api", 200, burst + 1, burst},
		"by a token behind two blanks, which is none":    {token("Bearer  good"), "/api", 200, burst + 1, burst},
		"by upgrades that are refused":                   {upgrade("good", "websocket"), "/api/v1/namespaces/a/pods/b/exec", 403, burst, burst},
		"by upgrades with bad tokens":                    {upgrade("bad", "SPDY/3.1"), "/api/v1/namespaces/a/pods/b/exec", 401, burst, burst},
		"by upgrades of backends":                        {upgrade("good", "anything"), "/api/v1/namespaces/a/services/b/proxy/c", 403, burst, burst},
		"by upgrades to what no apiserver knows":         {upgrade("good", "h2c"), "/api", 200, 1, requests},
		"by upgrades to what no apiserver knows, of all": {upgrade("good", "foo"), "/api/v1/pods", 200, 1, requests},
	} {
		t.Run(name, func(t *testing.T) {
			var connections atomic.Int64
			h := newHub(t, refusing(&connections))
			h.proxy.costs = limits.NewCosts(burst, 1e-6)
			var refused atomic.Int64
			h.proxy.refused = func(context.Context) { refused.Add(1) }
			h.proxy.tenant = func(r *http.Request) (tenant, user string) {
				switch token := r.Header.Get("Authorization"); token {
				case "Bearer good":
					return "a tenant", "a user"
				case "Bearer good2":
					return "another", "a user"
				}
				return "", "a pod"
			}
			do := func(path string, header http.Header) int {
				t.Helper()
				res := h.do(t, http.MethodGet, path, "", header)
				_, _ = io.Copy(io.Discard, res.Body)
				return res.StatusCode
			}
			if code := do(tt.path, tt.header); code != tt.code {
				t.Errorf("answered %d, want %d", code, tt.code)
			}
			rest := 1
			for range requests - 1 {
				if do(tt.path, tt.header) != http.StatusTooManyRequests {
					rest++
				}
			}
			if n := connections.Load(); n > tt.most || rest != tt.rest {
				t.Errorf("%d requests, of which %d are passed on, use %d connections; want %d and %d", requests, rest, n, tt.rest, tt.most)
			}
			if n := refused.Load(); n != int64(requests-rest) {
				t.Errorf("%d requests count as refused, of %d", n, requests-rest)
			}
			for _, other := range []http.Header{nil, bearer("good"), bearer("good2")} {
				for range requests {
					if code := do("/api", other); code != http.StatusOK {
						t.Fatalf("a request of %q: %d", other, code)
					}
				}
			}
			if code := do("/api", upgrade("good2", "websocket")); code != http.StatusForbidden {
				t.Errorf("an upgrade of another tenant: %d", code)
			}
		})
	}
}

func TestAnUpgradeThatSucceedsCostsNothing(t *testing.T) {
	h := newHub(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
		w.WriteHeader(http.StatusSwitchingProtocols)
	})
	h.proxy.costs = limits.NewCosts(2, 1e-6)
	for i := range 10 {
		res := h.do(t, http.MethodGet, "/api/v1/namespaces/a/pods/b/exec", "", http.Header{"Authorization": {"Bearer good"}, "Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}})
		res.Body.Close()
		if res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("the %d. is answered %s", i, res.Status)
		}
	}
}
