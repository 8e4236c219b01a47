package proxy

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestWhatCannotArriveAsItWasSentIsRefused(t *testing.T) {
	hub := newHubWithToken(t, "node", func(_ http.ResponseWriter, r *http.Request) { t.Errorf("arrived: %s %s", r.Method, r.RequestURI) })
	tests := map[string]struct{ request, says string }{
		"a URL without a path":                  {"GET a:b HTTP/1.1\r\nHost: hub\r\n\r\n", "no path"},
		"a URL of another scheme":               {"GET ftp://hub/a HTTP/1.1\r\nHost: hub\r\n\r\n", "no path"},
		"a URL without a host":                  {"GET http:/a HTTP/1.1\r\nHost: hub\r\n\r\n", "no path"},
		"an asterisk":                           {"GET * HTTP/1.1\r\nHost: hub\r\n\r\n", "no path"},
		"the first line of HTTP/2":              {"PRI * HTTP/2.0\r\n\r\n", "no path"},
		"CONNECT to a host":                     {"CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: hub\r\n\r\n", "no path"},
		"CONNECT with a path":                   {"CONNECT /api HTTP/1.1\r\nHost: hub\r\n\r\n", "CONNECT"},
		"two slashes and an open bracket":       {"GET //a{b HTTP/1.1\r\nHost: hub\r\n\r\n", "two slashes"},
		"a token that Connection names":         {"GET /api HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer x\r\nConnection: close, AUTHORIZATION\r\n\r\n", "drop Authorization"},
		"a WebSocket token that it names":       {"GET /api HTTP/1.1\r\nHost: hub\r\nConnection: Upgrade, Sec-WebSocket-Protocol\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.eA\r\n\r\n", "Sec-Websocket-Protocol"},
		"impersonation that it names":           {"GET /api HTTP/1.1\r\nHost: hub\r\nImpersonate-User: x\r\nConnection: impersonate-user\r\n\r\n", "Impersonate-User"},
		"a front proxy's user that it names":    {"GET /api HTTP/1.1\r\nHost: hub\r\nX-Remote-User: x\r\nConnection: x-remote-user\r\n\r\n", "X-Remote-User"},
		"the same on a second line":             {"GET /api HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer x\r\nConnection: close\r\nConnection: authorization\r\n\r\n", "drop Authorization"},
		"two lengths that differ":               {"POST /api HTTP/1.1\r\nHost: hub\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", ""},
		"another transfer encoding":             {"POST /api HTTP/1.1\r\nHost: hub\r\nTransfer-Encoding: gzip\r\n\r\n", ""},
		"two transfer encodings":                {"POST /api HTTP/1.1\r\nHost: hub\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", ""},
		"a transfer encoding behind a tab":      {"POST /api HTTP/1.1\r\nHost: hub\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", ""},
		"a length with a sign":                  {"POST /api HTTP/1.1\r\nHost: hub\r\nContent-Length: +1\r\n\r\na", ""},
		"a blank before the colon":              {"GET /api HTTP/1.1\r\nHost: hub\r\nAuthorization : Bearer x\r\n\r\n", ""},
		"two Hosts":                             {"GET /api HTTP/1.1\r\nHost: hub\r\nHost: other\r\n\r\n", ""},
		"a blank in the path":                   {"GET /a b HTTP/1.1\r\nHost: hub\r\n\r\n", ""},
		"a NUL in the path":                     {"GET /a\x00b HTTP/1.1\r\nHost: hub\r\n\r\n", ""},
		"a carriage return in a header's value": {"GET /api HTTP/1.1\r\nHost: hub\r\nX-A: b\rX-C: d\r\n\r\n", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			res := raw(t, hub, tt.request)
			body, _ := io.ReadAll(res.Body)
			isRefused := res.StatusCode >= 400 && res.StatusCode < 500 || res.StatusCode == http.StatusNotImplemented // by net/http
			if tt.says != "" {
				isRefused = res.StatusCode == http.StatusBadRequest
			}
			if !isRefused || !strings.Contains(string(body), tt.says) {
				t.Errorf("got %d %q, want to be refused, and %q", res.StatusCode, body, tt.says)
			}
		})
	}
}

func TestPathsArriveByteForByte(t *testing.T) {
	hub := newHub(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(r.RequestURI)
	})
	for name, path := range map[string]string{
		"what Go would escape":       `/a{b}"<>|\^` + "`" + `/c?q={"`,
		"what Go would not":          "/%7Ba%41/b",
		"a hash, which ends nothing": "/a#b?c#d",
		"bytes beyond ASCII":         "/\xc3\xa4/\xff?\xff",
		"dots and slashes":           "/api/../..//%2e%2e/%2F/.",
		"two slashes":                "//api//v1",
		"an empty query":             "/api?",
		"what net/url does not like": "/api/v1/pods?labelSelector=a;b&x=%zz&limit=5",
		"a path behind a Service":    "/api/v1/namespaces/n/services/s:80/proxy/a%2Fb//c/../d",
		"NUL and line breaks":        "/a%00b%0d%0aX:%20y?c=%0d%0a",
	} {
		t.Run(name, func(t *testing.T) {
			for kind, header := range map[string]string{"a request": "", "an upgrade": "Connection: Upgrade\r\nUpgrade: websocket\r\n"} {
				var got string
				res := raw(t, hub, "GET "+path+" HTTP/1.1\r\nHost: hub\r\n"+header+"\r\n")
				if err := json.NewDecoder(res.Body).Decode(&got); err != nil {
					t.Fatalf("%s: %d, %v", kind, res.StatusCode, err)
				}
				// JSON has no byte \xff; U+FFFD takes its place on both sides.
				if want := strings.ToValidUTF8(path, "�"); got != want {
					t.Errorf("%s arrived as %q, want %q", kind, got, want)
				}
			}
		})
	}
}
