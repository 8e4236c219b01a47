package upstream_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// storm answers 503 while it is on, but to the paths that spared names.
type storm struct {
	on     atomic.Bool
	spared func(path string) bool
	asked  atomic.Int64 // by the hub itself
	code   int
}

func (s *storm) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == nodeLease || r.URL.Path == "/api" || r.URL.Path == "/livez" || r.URL.Path == "/readyz" {
		s.asked.Add(1)
	}
	if s.on.Load() && (s.spared == nil || !s.spared(r.URL.Path)) {
		w.WriteHeader(s.code)
	}
}

const (
	nodes  = "/api/v1/nodes"
	leases = "/apis/coordination.k8s.io/v1/leases"
	// nodeLease is what the hub asks for in doubt.
	nodeLease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node"
	measured  = "/apis/metrics.k8s.io/v1beta1/nodes"
)

func TestStormOfBadAnswers(t *testing.T) {
	health := func(path string) bool { return path == "/livez" }
	api := func(path string) bool { return path == "/livez" || path == "/api" }
	aggregated := func(path string) bool { return !strings.HasPrefix(path, "/apis/metrics.k8s.io/") }
	throttled := func(path string) bool { return path != pods && path != nodes }
	others := func(path string) bool { return path != pods }
	lease := func(path string) bool { return path == leases || path == nodeLease }
	tests := map[string]struct {
		code   int
		spared func(string) bool
		paths  []string
		lost   bool
	}{
		"503 to everything":                             {503, nil, []string{pods, pods, pods}, true},
		"502 to everything":                             {502, nil, []string{pods, pods, pods}, true},
		"504 to everything":                             {504, nil, []string{pods, pods, pods}, true},
		"429 to everything":                             {429, nil, []string{pods, nodes, leases}, true},
		"two are not enough":                            {503, nil, []string{pods, pods}, false},
		"all but its health":                            {503, health, []string{pods, pods, pods}, true},
		"all but its health and discovery":              {503, api, []string{pods, nodes, leases}, true},
		"one resource alone":                            {503, others, []string{pods, pods, pods, pods, pods, pods}, false},
		"an aggregated API that is out of order":        {503, aggregated, []string{measured, measured, measured, measured, measured}, false},
		"an aggregated API, and nothing else is asked":  {503, nil, []string{measured, measured, measured, measured}, false},
		"one client that is throttled on two resources": {429, throttled, []string{pods, nodes, pods, nodes, pods}, false},
		"good answers in between":                       {503, lease, []string{pods, nodes, leases, pods, nodes, leases, pods, nodes}, false},
		"good answers in between, and none to the node": {503, func(p string) bool { return p == leases }, []string{pods, leases, pods, leases, pods}, true},
		"health checks in between are no good answers":  {503, health, []string{pods, "/livez", pods, "/livez", pods}, true},
		"evictions that a budget refuses":               {429, nil, []string{"/api/v1/namespaces/n/pods/p/eviction", "/api/v1/namespaces/n/pods/q/eviction", "/api/v1/namespaces/n/pods/r/eviction"}, false},
		"a kubelet that does not answer its apiserver":  {502, nil, []string{"/api/v1/namespaces/n/pods/p/log", "/api/v1/namespaces/n/pods/p/log", "/api/v1/namespaces/n/pods/p/log"}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := &storm{code: tt.code, spared: tt.spared}
			inCloud(t, s.ServeHTTP, local(), func(t *testing.T, c *cloud) {
				c.mustGet(pods)
				s.on.Store(true)
				for i, path := range tt.paths {
					code, _, _, err := c.get(path)
					want := tt.code
					if tt.spared != nil && tt.spared(path) {
						want = 200
					}
					if code != want || err != nil {
						t.Errorf("request %d, %s: %d, %v; want the apiserver's own %d", i, path, code, err, want)
					}
				}
				time.Sleep(100 * time.Millisecond) // the hub asks by itself
				synctest.Wait()
				if c.isLost() != tt.lost {
					t.Errorf("lost: %v, want %v; log:\n%s", c.isLost(), tt.lost, c.log)
				}
				if !tt.lost {
					return
				}
				c.mustFail(leases, 0)
				if code, _, _, err := c.post(leases); err == nil {
					t.Errorf("a write is sent to an apiserver that is lost: %d", code)
				}
				s.on.Store(false)
				began := time.Now()
				if err := c.upstream.WaitUp(t.Context()); err != nil || time.Since(began) > bound {
					t.Errorf("back after %v, %v", time.Since(began), err)
				}
				c.mustGet(pods)
			})
		})
	}
}

func (c *cloud) post(path string) (int, int, time.Duration, error) {
	res, err := c.send(c.t.Context(), http.MethodPost, path, strings.NewReader("{}"))
	if err != nil {
		return 0, 0, 0, err
	}
	return res.StatusCode, 0, 0, res.Body.Close()
}

func TestAWriteAlwaysGetsItsOwnAnswer(t *testing.T) {
	s := &storm{code: 503}
	inCloud(t, s.ServeHTTP, local(), func(t *testing.T, c *cloud) {
		s.on.Store(true)
		for range 3 {
			if code, _, _, err := c.post(pods); code != 503 || err != nil {
				t.Fatalf("%d, %v", code, err)
			}
		}
		time.Sleep(100 * time.Millisecond)
		if !c.isLost() {
			t.Error("it is not lost")
		}
	})
}

func TestApiserverThatIsWellOnlyInItsHealthDoesNotFlap(t *testing.T) {
	s := &storm{code: 503, spared: func(path string) bool { return path == "/livez" || path == "/api" }}
	inCloud(t, s.ServeHTTP, local(), func(t *testing.T, c *cloud) {
		s.on.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		passed := 0
		for ctx.Err() == nil {
			for _, path := range []string{pods, nodes, leases} {
				if code, _, _, err := c.get(path); err == nil && code == 503 {
					passed++
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if losses := strings.Count(c.log.String(), "WARN"); losses != 1 {
			t.Errorf("lost %d times in an hour, want once", losses)
		}
		if passed > 5 {
			t.Errorf("%d bad answers were passed on", passed)
		}
		s.on.Store(false)
		began := time.Now()
		if err := c.upstream.WaitUp(t.Context()); err != nil || time.Since(began) > upstream.MaxProbeFactor*upstream.DefaultProbe+time.Second {
			t.Errorf("back after %v, %v", time.Since(began), err)
		}
		c.mustGet(pods)
	})
}

func TestOneClientsBadAnswersCostFewQuestions(t *testing.T) {
	s := &storm{code: 503, spared: func(path string) bool { return path != pods }}
	inCloud(t, s.ServeHTTP, local(), func(t *testing.T, c *cloud) {
		s.on.Store(true)
		for range 3600 {
			if code, _, _, err := c.get(pods); code != 503 || err != nil {
				t.Fatalf("%d, %v", code, err)
			}
			time.Sleep(time.Second)
		}
		if n := s.asked.Load(); n < 60 || n > 150 {
			t.Errorf("asked %d times in an hour, want about once in 30 s", n)
		}
	})
}
