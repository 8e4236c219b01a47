package csrf

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// request returns a request to host, over TLS if name is not empty. headers are names and values in turn.
func request(host, name string, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/pods", nil)
	r.Host = host
	if name != "" {
		r.TLS = &tls.ConnectionState{ServerName: name}
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func TestCheckKnowsWebPages(t *testing.T) {
	const ours = "127.0.0.1:10267"
	tests := map[string]struct {
		r    *http.Request
		says string // empty: it passes
	}{
		"curl by address":                             {request(ours, ""), ""},
		"curl as localhost":                           {request("localhost:10267", ""), ""},
		"curl as LOCALHOST":                           {request("LOCALHOST:10267", ""), ""},
		"localhost without a port":                    {request("localhost", ""), ""},
		"an IPv6 address":                             {request("[::1]:10267", ""), ""},
		"an IPv6 address without a port":              {request("[::1]", ""), ""},
		"an IPv6 address with a zone":                 {request("[fe80::1%25eth0]:10267", ""), ""},
		"another address, as a redirected one":        {request("169.254.2.1:10261", ""), ""},
		"no Host at all, as HTTP/1.0 has":             {request("", ""), ""},
		"a page of the API itself":                    {request(ours, "", "Origin", "http://"+ours, "Sec-Fetch-Site", "same-origin"), ""},
		"an address typed into a browser":             {request(ours, "", "Sec-Fetch-Site", "none"), ""},
		"the default port left out of Origin":         {request("127.0.0.1:80", "", "Origin", "http://127.0.0.1"), ""},
		"over TLS, the name that the handshake had":   {request("n1.example.com:10267", "n1.example.com"), ""},
		"over TLS, its own page":                      {request("n1:10267", "n1", "Origin", "https://n1:10267"), ""},
		"a rebound name":                              {request("evil.example.com:10267", ""), `its Host is "evil.example.com:10267"`},
		"a rebound name without a port":               {request("evil.example.com", ""), "Host"},
		"a name that begins like an address":          {request("127.0.0.1.evil.example.com", ""), "Host"},
		"a name that ends as localhost":               {request("evil.localhost:10267", ""), "Host"},
		"localhost's fully qualified name":            {request("localhost.:10267", ""), "Host"},
		"a whole number for an address":               {request("2130706433:10267", ""), "Host"},
		"an address with a leading zero":              {request("0127.0.0.1:10267", ""), "Host"},
		"the address of no address":                   {request("0.0.0.0:10267", ""), "Host"},
		"the address of no address, IPv6":             {request("[::]:10267", ""), "Host"},
		"the address of no address, mapped":           {request("[::ffff:0.0.0.0]:10267", ""), "Host"},
		"a user before the address":                   {request("evil@127.0.0.1:10267", ""), "Host"},
		"a port that is none":                         {request("127.0.0.1:evil", ""), "Host"},
		"IPv6 without brackets":                       {request("::1", ""), "Host"},
		"a name in brackets":                          {request("[evil.example.com]:10267", ""), "Host"},
		"over TLS, a name that the handshake had not": {request("evil.example.com:10267", "n1"), "Host"},
		"over TLS without a name":                     {&http.Request{Host: "evil.example.com", TLS: &tls.ConnectionState{}}, "Host"},
		"a page from elsewhere":                       {request(ours, "", "Origin", "https://evil.example.com"), `"https://evil.example.com"`},
		"a page without an origin":                    {request(ours, "", "Origin", "null"), `"null"`},
		"an empty Origin":                             {request(ours, "", "Origin", ""), "web page"},
		"a page of another port":                      {request(ours, "", "Origin", "http://127.0.0.1:8080"), "8080"},
		"a page of the same name over TLS":            {request(ours, "", "Origin", "https://"+ours), "https"},
		"over TLS, a page of the same name over HTTP": {request(ours, "n1", "Origin", "http://"+ours), "http"},
		"a second Origin":                             {request(ours, "", "Origin", "http://"+ours, "Origin", "https://evil.example.com"), "evil"},
		"a navigation from elsewhere":                 {request(ours, "", "Sec-Fetch-Site", "cross-site"), "cross-site"},
		"a page of a neighbour":                       {request(ours, "", "Sec-Fetch-Site", "same-site"), "same-site"},
		"a second Sec-Fetch-Site":                     {request(ours, "", "Sec-Fetch-Site", "none", "Sec-Fetch-Site", "cross-site"), "cross-site"},
		"a WebSocket of a page from elsewhere":        {request(ours, "", "Upgrade", "websocket", "Connection", "Upgrade", "Origin", "https://evil.example.com"), "evil"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := Check(tt.r)
			switch {
			case tt.says == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)):
				t.Errorf("got %v, want an error that says %q", err, tt.says)
			case err != nil && strings.ContainsAny(err.Error(), "\r\n"):
				t.Errorf("got %q, want one line", err)
			}
		})
	}
}

func TestProgramsAnswers403InOneLine(t *testing.T) {
	reached := false
	h := Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request("evil.example.com", ""))
	if body := w.Body.String(); w.Code != http.StatusForbidden || reached || strings.Count(body, "\n") != 1 || !strings.Contains(body, "localhost") {
		t.Errorf("a rebound name got %d %q, handler reached: %v", w.Code, body, reached)
	}
	h.ServeHTTP(httptest.NewRecorder(), request("127.0.0.1:10267", ""))
	if !reached {
		t.Error("a program did not reach the handler")
	}
}

// FuzzCheck checks every Host and Origin that passes: the Host is not a website's name, and the Origin
// is not another site.
func FuzzCheck(f *testing.F) {
	for _, host := range []string{"127.0.0.1:10267", "localhost", "[::1]:1", "evil.example.com", "127.0.0.1.evil", "[::1", "::1", "a:b:c", "", "[fe80::1%lo]:80", "0x7f.1", "127.1", "LocalHost:10267", "127.0.0.1:", "[127.0.0.1]:1", "1.2.3.4@evil", "１２７.0.0.1"} {
		f.Add(host, "", "")
		f.Add(host, "http://"+host, "none")
		f.Add(host, "http://evil.example.com", "cross-site")
		f.Add("127.0.0.1:10267", "http://127.0.0.1:10267@"+host, "same-origin")
	}
	f.Fuzz(func(t *testing.T, host, origin, site string) {
		headers := []string{"Origin", origin}
		if site != "" {
			headers = append(headers, "Sec-Fetch-Site", site)
		}
		r := request(host, "", headers...)
		if err := Check(r); err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 2000 {
				t.Errorf("says %q", err)
			}
			return
		}
		if letters := strings.IndexFunc(strings.ToLower(host), isNameLetter); letters >= 0 && !strings.HasPrefix(strings.ToLower(host), "localhost") && !strings.HasPrefix(host, "[") {
			t.Errorf("Host %q passed", host)
		}
		want := "http://" + strings.ToLower(host)
		if got := strings.ToLower(origin); got != want && got+":80" != want && got != want+":80" {
			t.Errorf("Origin %q passed for Host %q", origin, host)
		}
		if site != "" && site != "none" && site != "same-origin" {
			t.Errorf("Sec-Fetch-Site %q passed", site)
		}
	})
}

// isNameLetter reports whether r cannot be part of an IPv4 address and a port.
func isNameLetter(r rune) bool { return !strings.ContainsRune("0123456789.:", r) }
