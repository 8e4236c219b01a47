package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// maxPause is the longest pause between two probes of an apiserver that answers,
// but nothing useful.
const maxPause = 30 * time.Second

// answers decides when an apiserver that answers 502, 503, 504 or 429 is as good
// as lost: when it says so to everything. That an aggregated API is out of
// order, that one client is throttled or one list takes too long, is for that
// client to know, and no reason to take the cloud from the others. So
//
//   - only requests that the apiserver has to answer itself count: built-in
//     groups, and no subresource that it passes on or that has a 429 of its own;
//   - any useful answer in between, but to a health check, ends the count;
//   - after Limits.BadAnswers in a row the apiserver is asked for /api in the
//     node's name, and is lost if it answers that badly, too. It is also lost,
//     whatever it says to that, if the answers were to requests for different
//     resources and not all of them were 429.
//
// One that comes back by a probe is on trial: it is lost again at the first bad
// answer before a good one, and then probed half as often as before.
type answers struct {
	limits Limits

	mu        sync.Mutex
	bad       int    // in a row
	resource  string // of the first of them
	various   bool   // others were for another resource
	throttled bool   // all of them were 429
	trial     bool
	wait      time.Duration // between probes
	doubtful  time.Time     // until then a count says nothing: /api was answered
	patience  time.Duration // of doubtful
}

func newAnswers(limits Limits) *answers { return &answers{limits: limits, wait: limits.Probe} }

// opinion is what an answer says about the apiserver.
type opinion int

const (
	useful opinion = iota // it is well
	unclear
	worthAsking // perhaps it says so to everything
	useless     // it says so to everything
)

// note takes up one answer to a request for info, or nil.
func (a *answers) note(path string, info *request.RequestInfo, code int, now time.Time) opinion {
	a.mu.Lock()
	defer a.mu.Unlock()
	counts := answersItself(info)
	if !badAnswer(code) {
		if healthCheck(path) {
			return unclear
		}
		a.bad = 0
		if counts {
			a.trial, a.wait, a.patience = false, a.limits.Probe, 0
		}
		return useful
	}
	if !counts {
		return unclear
	}
	resource := info.APIGroup + "/" + info.Resource
	if a.bad == 0 {
		a.resource, a.various, a.throttled = resource, false, true
	}
	a.bad++
	a.various = a.various || resource != a.resource
	a.throttled = a.throttled && code == http.StatusTooManyRequests
	switch {
	case a.trial:
		a.wait = min(2*a.wait, maxPause)
		a.bad, a.trial = 0, false
		return useless
	case a.bad < a.limits.BadAnswers:
		return unclear
	case a.various && !a.throttled:
		a.bad = 0
		return useless
	case now.Before(a.doubtful):
		return unclear
	}
	a.patience = min(max(2*a.patience, a.limits.Probe), maxPause)
	a.doubtful = now.Add(a.patience)
	return worthAsking
}

// onTrial notes that the apiserver is taken back because of a probe.
func (a *answers) onTrial() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bad, a.trial = 0, true
}

func (a *answers) pause() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wait
}

// judge passes on the answer to a client's request. Where it shows that the
// apiserver answers so to everything, a request that may be sent again gets a
// *busyError in its place.
func (s *server) judge(req *http.Request, res *http.Response) (*http.Response, error) {
	info, _ := request.RequestInfoFrom(req.Context())
	switch s.answers.note(req.URL.Path, info, res.StatusCode, time.Now()) {
	case unclear:
		return res, nil
	case useful:
		s.health.succeeded(time.Now())
		return res, nil
	case worthAsking:
		if !s.refusesDiscovery(req.Context()) {
			return res, nil
		}
	}
	busy := &busyError{res.StatusCode}
	s.health.failed(time.Now(), busy)
	if !repeatable(req) {
		return res, nil
	}
	res.Body.Close()
	return nil, busy
}

// refusesDiscovery reports whether even what the apiserver knows by heart gets a
// bad answer. That it cannot be reached is for others to notice.
func (s *server) refusesDiscovery(ctx context.Context) bool {
	code, err := s.get(withIdentity(ctx, Node), "/api", time.Now())
	return err == nil && badAnswer(code)
}

// badAnswer reports whether code is one that says nothing but: not now.
func badAnswer(code int) bool {
	switch code {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusTooManyRequests:
		return true
	}
	return false
}

func healthCheck(path string) bool {
	for _, prefix := range []string{"/livez", "/readyz", "/healthz"} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// answersItself reports whether an apiserver answers a request for info without
// asking anybody else: neither an aggregated apiserver, nor a kubelet, nor a
// disruption budget (whose no is a 429).
func answersItself(info *request.RequestInfo) bool {
	if info == nil || !info.IsResourceRequest {
		return false
	}
	switch info.Subresource {
	case "proxy", "exec", "attach", "portforward", "log", "eviction":
		return false
	}
	return builtIn(info.APIGroup)
}

// builtIn reports whether the API group is one of Kubernetes itself. Others may
// be anybody's, and names that end in k8s.io may be, too (metrics.k8s.io).
func builtIn(group string) bool {
	switch group {
	case "", "apps", "autoscaling", "batch", "policy",
		"admissionregistration.k8s.io", "authentication.k8s.io", "authorization.k8s.io",
		"certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io",
		"flowcontrol.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io",
		"rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io":
		return true
	}
	return false
}

// busyError says that an apiserver is there, but of no use.
type busyError struct{ code int }

func (e *busyError) Error() string {
	return fmt.Sprintf("it answers %d %s to everything", e.code, http.StatusText(e.code))
}

func asBusy(err error) *busyError {
	var busy *busyError
	errors.As(err, &busy)
	return busy
}
