package ownnode

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

type answer struct {
	code        int
	contentType string
}

// RoundTrip implements http.RoundTripper.
func (a *answer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.code, Header: http.Header{"Content-Type": {a.contentType}}, Body: http.NoBody}, nil
}

func TestWhichAnswersCount(t *testing.T) {
	var log bytes.Buffer
	isNode, away, back := true, false, 0
	n := New(Options{
		Name: "gate-17", IsNode: func(context.Context) bool { return isNode }, Away: func() bool { return away }, Back: func() { back++ },
		Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	cloud := &answer{}
	through := n.Wrap(cloud)
	const own, protobuf = "/api/v1/nodes/gate-17", "application/vnd.kubernetes.protobuf"
	for _, tt := range []struct {
		what                      string
		method, path, contentType string
		code                      int
		pod, away                 bool
		missing                   bool // afterwards
	}{
		{what: "it is there", method: "GET", path: own, code: 200},
		{what: "a pod's read", method: "GET", path: own, code: 404, pod: true},
		{what: "another node", method: "GET", path: "/api/v1/nodes/gate-1", code: 404},
		{what: "a page of a portal", method: "GET", path: own, code: 404, contentType: "text/html"},
		{what: "the cache's answer", method: "GET", path: own, code: 404, away: true},
		{what: "an error", method: "GET", path: own, code: 500},
		{what: "a deletion", method: "DELETE", path: own, code: 404},
		{what: "kubelet's read", method: "GET", path: own, code: 404, contentType: protobuf, missing: true},
		{what: "kubelet's report", method: "PATCH", path: own + "/status", code: 404, missing: true},
		{what: "an error again", method: "GET", path: own, code: 503, missing: true},
		{what: "what the cache has", method: "GET", path: own, code: 200, away: true, missing: true},
		{what: "it is back", method: "PATCH", path: own + "/status", code: 200},
		{what: "deleted again", method: "PATCH", path: own + "/status", code: 404, missing: true},
		{what: "and back", method: "GET", path: own, code: 200},
	} {
		isNode, away = !tt.pod, tt.away
		cloud.code, cloud.contentType = tt.code, tt.contentType
		if cloud.contentType == "" {
			cloud.contentType = "application/json"
		}
		res, err := through.RoundTrip(httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, http.NoBody))
		if err != nil || res.StatusCode != tt.code {
			t.Fatalf("%s: %v, %v", tt.what, res, err)
		}
		if got := n.Missing(); (got != "") != tt.missing || tt.missing && !strings.Contains(got, "no Node gate-17") {
			t.Errorf("%s: %q", tt.what, got)
		}
	}
	if back != 2 || strings.Count(log.String(), "level=WARN") != 2 || strings.Count(log.String(), "\n") != 4 {
		t.Errorf("back %d times, log:\n%s", back, log.String())
	}
}
