package upstream

import (
	"errors"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/proxy/upstream/liveness"
)

// slowRequest is how long a caller has to have waited for an answer before its giving up
// counts as a doubt: kubelet allows most of its requests 10 s.
const slowRequest = 5 * time.Second

// handleResponse passes on the answer to a client's request. A bad one raises doubt, and no
// more: whether the apiserver is lost is for askStorage to find out. Only where that is
// so already, an answer that was under way is replaced by the reason, if the request
// may be sent again, to another apiserver, or be answered from the cache.
func (s *server) handleResponse(req *http.Request, res *http.Response) (*http.Response, error) {
	if !isTransientStatus(res.StatusCode) && res.StatusCode != http.StatusInternalServerError {
		s.health.gotResponse(time.Now())
		return res, nil
	}
	s.recordFailure(req)
	unusable := asNotServing(s.health.down())
	if unusable == nil || !isTransientStatus(res.StatusCode) || !idempotent(req) {
		return res, nil
	}
	res.Body.Close()
	return nil, unusable
}

// handleFailure draws conclusions from a request that got a connection, was sent at began,
// and no answer: it was broken off, or its caller has waited for long.
func (s *server) handleFailure(req *http.Request, err error, began time.Time) {
	gaveUp := req.Context().Err() != nil
	if liveness.IsUnresponsive(err) || errors.Is(err, ErrClientBody) || gaveUp && time.Since(began) < slowRequest {
		return
	}
	s.recordFailure(req)
}

// recordFailure takes what became of req for a sign that the apiserver may not serve the node
// any more, if it answers such requests itself. That an aggregated API is out of order
// is for its clients to know.
func (s *server) recordFailure(req *http.Request) {
	if info, _ := request.RequestInfoFrom(req.Context()); isBuiltInRequest(info) && s.health.down() == nil {
		s.checks.countFailure(time.Now())
	}
}

// ConnectFailed draws conclusions from a failure to connect that is no silence. Where no
// connection stands it is a loss. Where one does, the failure may be the doing of
// whoever has many opened (upgrades have one each): a load balancer allows so
// many to each client, and this machine has so many ports and files.
func (s *server) ConnectFailed(err error) {
	if s.health.down() == nil && s.conns.AnyEstablished() {
		s.checks.trigger(time.Now())
		return
	}
	s.health.failed(time.Now(), err)
}

// isTransientStatus reports whether code is one that says nothing but: not now.
func isTransientStatus(code int) bool {
	switch code {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusTooManyRequests:
		return true
	}
	return false
}

// isBuiltInRequest reports whether an apiserver answers a request for info without
// asking anybody else: neither an aggregated apiserver, nor a kubelet, nor a
// disruption budget (whose no is a 429).
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

// isBuiltInGroup reports whether the API group is one of Kubernetes itself. Others may
// be anybody's, and names that end in k8s.io may be, too (metrics.k8s.io).
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
