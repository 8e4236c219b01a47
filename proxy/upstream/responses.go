package upstream

import (
	"errors"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/proxy/upstream/liveness"
)

// slowRequest is how long a caller must have waited for an answer before its cancellation
// counts as a failure: the kubelet's timeout for most requests is 10 s.
const slowRequest = 5 * time.Second

// handleResponse returns the response to a client's request. A bad one counts as a failure, but
// only checkStorage can find the apiserver lost. If it is lost already, a response that was
// in flight is replaced by the reason, provided that the request may be sent again to
// another apiserver, or be answered from the cache.
func (s *server) handleResponse(req *http.Request, res *http.Response) (*http.Response, error) {
	if !isTransientStatus(res.StatusCode) && res.StatusCode != http.StatusInternalServerError {
		s.answered()
		return res, nil
	}
	s.recordFailure(req)
	down := s.health.err()
	if !is[*notServingError](down) || !isTransientStatus(res.StatusCode) || !idempotent(req) {
		return res, nil
	}
	res.Body.Close()
	return nil, down
}

// handleFailure handles a request that got a connection, was sent at began, and got no
// response: it was broken off, or its caller canceled it after a long wait.
func (s *server) handleFailure(req *http.Request, err error, began time.Time) {
	gaveUp := req.Context().Err() != nil
	if liveness.IsUnresponsive(err) || errors.Is(err, ErrClientBody) || gaveUp && time.Since(began) < slowRequest {
		return
	}
	s.recordFailure(req)
}

// recordFailure counts a failure of req if the apiserver answers such requests itself: failures
// of aggregated APIs do not count.
func (s *server) recordFailure(req *http.Request) {
	if info, _ := request.RequestInfoFrom(req.Context()); isBuiltInRequest(info) && s.health.err() == nil {
		s.checks.countFailure(time.Now())
	}
}

// isTransientStatus reports whether code means that the server is temporarily unavailable.
func isTransientStatus(code int) bool {
	switch code {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusTooManyRequests:
		return true
	}
	return false
}

// isBuiltInRequest reports whether an apiserver answers a request for info itself: not an
// aggregated apiserver, not a kubelet, and not by a disruption budget (which refuses with
// 429).
func isBuiltInRequest(info *request.RequestInfo) bool {
	if info == nil || !info.IsResourceRequest {
		return false
	}
	switch info.Subresource {
	case "proxy", "exec", "attach", "portforward", "log", "eviction":
		return false
	}
	return isBuiltInGroup(info.APIGroup)
}

// isBuiltInGroup reports whether the API group is one of Kubernetes itself. Groups of others
// may also end in k8s.io (metrics.k8s.io).
func isBuiltInGroup(group string) bool {
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
