package ota

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// asked is a cloud that notes what it is asked for, and knows nothing.
type asked struct {
	urls []string
	hang context.CancelFunc // has the caller hang up
}

func (a *asked) RoundTrip(r *http.Request) (*http.Response, error) {
	a.urls = append(a.urls, r.Method+" "+r.URL.String())
	if r.URL.Query().Has("watch") {
		a.hang() // there will be no event
	}
	code, body := http.StatusOK, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`
	if r.Method != http.MethodGet {
		code, body = http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}, nil
}

// What the cloud may be asked for, whatever the owner's program asks for.
var cloudURLs = regexp.MustCompile(`^(GET http://cloud/api/v1/pods\?fieldSelector=spec\.nodeName%3Dnode-1(&resourceVersion=&watch=true)?|DELETE http://cloud/api/v1/namespaces/[a-z0-9]([-a-z0-9]*[a-z0-9])?/pods/[a-z0-9]([-.a-z0-9]*[a-z0-9])?)$`)

// FuzzRequests holds what must be true of every method and path: an answer of one
// short line, and nothing asked of the cloud but this node's pods, and one pod whose
// name can be a pod's.
func FuzzRequests(f *testing.F) {
	cloud := &asked{}
	pods, err := NewPods(&rest.Config{Host: "http://cloud", Transport: cloud})
	if err != nil {
		f.Fatal(err)
	}
	const pod = "/openyurt.io/v1/namespaces/default/pods/web-1/upgrade"
	for _, path := range []string{pod, "/pods", "/v1/../pods", "//pods", "/%70ods", "/pods/", "/pods?x=%zz;&watch=maybe", "*", "http://evil/pods", "/\xff"} {
		f.Add("POST", path)
		f.Add("GET", path)
	}
	for _, name := range []string{"a%2Fb", "..", "%2e%2e", "a%00b", "%", "%zz", "a%0d%0aX:y", "A", "-", "", "a b", "a?b", "a#b", strings.Repeat("a", 254), strings.Repeat("%41", 5000), strings.Repeat("x/", 5000)} {
		f.Add("POST", strings.Replace(pod, "web-1", name, 1))
		f.Add("POST", strings.Replace(pod, "default", name, 1))
		f.Add("DELETE", strings.Replace(strings.Replace(pod, "default", name, 1), "upgrade", "imagepull", 1))
	}
	for _, query := range []string{
		"watch=true", "watch=true&timeoutSeconds=1", "watch=maybe", "watch=true&watch=true", "timeoutSeconds=9999999999999", "timeoutSeconds=-1",
		"labelSelector=app%3Dx,tier+notin+(a,b),!c", "labelSelector=%1b%00%0d", "labelSelector=app%3D" + strings.Repeat("x", 5000), "labelSelector=" + strings.Repeat("(", 5000),
		"fieldSelector=spec.nodeName%3Dnode-2", "fieldSelector=%1b%5b%3D1", "fieldSelector=" + strings.Repeat("x", 5000) + "%3D1", "labelSelector=a%3Db&fieldSelector=metadata.name!%3Dx&watch=1",
	} {
		f.Add("GET", "/pods?"+query)
	}
	for _, query := range []string{"at=2001-01-01T00:00:00." + strings.Repeat("0", 5000) + "Z", "window=02:00-05:00&tz=" + strings.Repeat("A", 5000), strings.Repeat("x", 5000) + "=1", "%zz", "a;b"} {
		f.Add("POST", pod+"?"+query)
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		raw := method + " " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			return // net/http's server answers it 400
		}
		h, err := New(Options{NodeName: "node-1", Pods: pods, Metrics: http.NotFoundHandler(), Cache: func() any { return nil }}) // lists are paced
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cloud.urls, cloud.hang = nil, cancel
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(ctx))
		for _, url := range cloud.urls {
			if !cloudURLs.MatchString(url) {
				t.Errorf("the cloud was asked for %s", url)
			}
		}
		body := w.Body.String()
		switch {
		case w.Code == http.StatusOK:
		case w.Code >= 500 && w.Code != http.StatusNotImplemented, w.Code < 400:
			t.Errorf("answered %d %.200q", w.Code, body)
		case len(body) > 4096 || strings.Count(body, "\n") != 1 || strings.ContainsAny(body, "\r\x00\x1b"):
			t.Errorf("answered %d %.200q, want one short line", w.Code, body)
		}
	})
}
