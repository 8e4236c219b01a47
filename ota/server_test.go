package ota

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/ota/api"
)

// unusedPods is for tests in which no one asks the cloud.
func unusedPods(t *testing.T) Options {
	pods, err := NewPods(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	return Options{NodeName: "node-1", Pods: pods}
}

// serve starts the API and returns its address.
func serve(t *testing.T, o Options) string {
	t.Helper()
	h, err := New(o)
	if err != nil {
		t.Fatalf("new: %v", err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// answer is what a caller gets to see.
type answer struct {
	code   int
	header http.Header
	body   string
}

// call sends a request. It follows no redirect.
func call(t *testing.T, method, url string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: read body: %v", method, url, err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

func TestNewNeedsItsOptions(t *testing.T) {
	whole := unusedPods(t)
	tests := map[string]struct {
		spoil func(*Options)
		says  string
	}{
		"a node name": {func(o *Options) { o.NodeName = "" }, "node name"},
		"a client":    {func(o *Options) { o.Pods = nil }, "client"},
		"metrics only once": {func(o *Options) {
			o.Registerer = prometheus.NewRegistry()
			_, _ = New(*o)
		}, "metrics"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := whole
			tt.spoil(&o)
			if _, err := New(o); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want an error that says %q", err, tt.says)
			}
		})
	}
}

func TestRoutes(t *testing.T) {
	o := unusedPods(t)
	o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") })
	url := serve(t, o)

	const upgradePath = "/openyurt.io/v1/namespaces/default/pods/web-1/upgrade"
	tests := map[string]struct {
		method, path string
		code         int
		body         string // whole if code is 200, else a part
		allow        string
	}{
		"healthz answers OK":                   {"GET", "/v1/healthz", 200, "OK", ""},
		"healthz answers HEAD":                 {"HEAD", "/v1/healthz", 200, "", ""},
		"readyz answers OK":                    {"GET", "/v1/readyz", 200, "OK", ""},
		"metrics come from their handler":      {"GET", "/metrics", 200, "metrics", ""},
		"healthz takes no POST":                {"POST", "/v1/healthz", 405, "use GET", "GET, HEAD"},
		"pods takes no DELETE":                 {"DELETE", "/pods", 405, "use GET", "GET, HEAD"},
		"upgrade takes no GET":                 {"GET", upgradePath, 405, "use POST", "POST"},
		"upgrade takes no PUT":                 {"PUT", upgradePath, 405, "use POST", "POST"},
		"an unknown path is named":             {"GET", "/healthz", 404, `"/healthz"`, ""},
		"an unknown path says which there are": {"POST", upgradePath + "d", 404, "GET /pods", ""},
		"a path is not cleaned by a redirect":  {"GET", "//pods", 404, "no such path", ""},
		"a folder up is not a redirect":        {"POST", "/v1/../pods", 404, "no such path", ""},
		"an empty name is no path":             {"POST", "/openyurt.io/v1/namespaces//pods/web-1/upgrade", 404, "no such path", ""},
		"a name with a slash is no pod":        {"POST", "/openyurt.io/v1/namespaces/default/pods/a%2Fb/upgrade", 404, "no pod can have the name", ""},
		"a name with a line break is no pod":   {"POST", "/openyurt.io/v1/namespaces/default/pods/a%0Ab/upgrade", 404, "no pod can have the name", ""},
		"a namespace with dots is none":        {"POST", "/openyurt.io/v1/namespaces/../pods/a/upgrade", 404, "no pod can have the name", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := call(t, tt.method, url+tt.path)
			if got.code != tt.code {
				t.Fatalf("got %d %q, want %d", got.code, got.body, tt.code)
			}
			if allow := got.header.Get("Allow"); allow != tt.allow {
				t.Errorf("got Allow %q, want %q", allow, tt.allow)
			}
			if tt.code == http.StatusOK {
				if got.body != tt.body {
					t.Errorf("got body %q, want %q", got.body, tt.body)
				}
				return
			}
			checkErrorBody(t, got, tt.body)
		})
	}
}

func TestAnUnknownPathNamesAllThatThereAre(t *testing.T) {
	got := call(t, "GET", serve(t, unusedPods(t))+"/nonsense")
	for _, path := range []string{
		api.Pods, api.Healthz, api.Readyz, api.Metrics, api.Cache, api.ImagePulls, api.Upgrades,
		api.Page, api.Apps, api.Node, api.Events, api.Stream, api.Bundle, api.WebCodes, api.WebTokens,
		upgradeWeb1, pullWeb1, holdWeb1, rollbackWeb1, historyWeb1,
	} {
		last := path[strings.LastIndex(path, "/"):]
		if !slices.ContainsFunc([]string{" " + path, "…" + last, "…/web" + last, "{pod}" + last}, func(s string) bool { return strings.Contains(got.body, s) }) {
			t.Errorf("%s is not named: %s", path, got.body)
		}
	}
}

// wants fails the test unless the answer has this code, and all of this text if it is a success, else a part of it.
func (a answer) wants(t *testing.T, code int, says string) {
	t.Helper()
	switch {
	case a.code != code:
		t.Fatalf("got %d %q, want %d", a.code, a.body, code)
	case code >= 300:
		checkErrorBody(t, a, says)
	case a.body != says+"\n":
		t.Errorf("got %q, want %q", a.body, says)
	}
}

// checkErrorBody holds what is promised of every error: one line of text.
func checkErrorBody(t *testing.T, got answer, says string) {
	t.Helper()
	if !strings.Contains(got.body, says) {
		t.Errorf("got %q, want it to say %q", got.body, says)
	}
	if strings.Count(got.body, "\n") != 1 || !strings.HasSuffix(got.body, "\n") {
		t.Errorf("got %q, want one line", got.body)
	}
	if contentType := got.header.Get("Content-Type"); contentType != "text/plain; charset=utf-8" {
		t.Errorf("got Content-Type %q, want text", contentType)
	}
}

func TestReadyzGivesTheReason(t *testing.T) {
	o := unusedPods(t)
	o.Ready = func() error { return errors.New("no apiserver\nanswered yet") }
	url := serve(t, o)

	call(t, "GET", url+"/v1/readyz").wants(t, http.StatusInternalServerError, "not ready: no apiserver answered yet")
	if got := call(t, "GET", url+"/v1/healthz"); got.code != http.StatusOK {
		t.Errorf("healthz: got %d %q, want 200 all the same", got.code, got.body)
	}
}

// What is wrong with the cache is no reason to take the hub for unready: it serves what it has.
func TestReadyzAddsWhatIsWrong(t *testing.T) {
	o := unusedPods(t)
	offline, missing := "", ""
	o.Unregistered = func() string { return missing }
	o.Offline = func() string { return offline }
	o.Trouble = func() string { return "the disk is read-only" }
	url := serve(t, o)
	for _, tt := range []struct{ offline, missing, want string }{
		{"", "", "OK; the disk is read-only"},
		{"offline since noon", "", "OK, offline since noon; the disk is read-only"},
		{"", "there is no Node", "OK; there is no Node; the disk is read-only"},
	} {
		offline, missing = tt.offline, tt.missing
		if got := call(t, "GET", url+"/v1/readyz"); got.code != http.StatusOK || got.body != tt.want {
			t.Errorf("got %d %q, want 200 %q", got.code, got.body, tt.want)
		}
	}
}
