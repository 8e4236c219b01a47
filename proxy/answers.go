package proxy

import (
	"errors"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// lateAfter is how long a caller has to have waited for an answer before its giving up
// counts as a doubt: kubelet allows most of its requests 10 s.
const lateAfter = 5 * time.Second

// judge passes on the answer to a client's request. A bad one raises doubt, and no
// more: whether the apiserver is lost is for askStorage to find out. Only where that is
// so already, an answer that was under way is replaced by the reason, if the request
// may be sent again, to another apiserver, or be answered from the cache.
func (s *server) judge(req *http.Request, res *http.Response) (*http.Response, error) {
	if !badAnswer(res.StatusCode) && res.StatusCode != http.StatusInternalServerError {
		s.health.heard(time.Now())
		return res, nil
	}
	s.doubt(req)
	unusable := asUnusable(s.health.down())
	if unusable == nil || !badAnswer(res.StatusCode) || !repeatable(req) {
		return res, nil
	}
	res.Body.Close()
	return nil, unusable
}

// unanswered draws conclusions from a request that got a connection, was sent at began,
// and no answer: it was broken off, or its caller has waited for long.
func (s *server) unanswered(req *http.Request, err error, began time.Time) {
	gaveUp := req.Context().Err() != nil
	if isSilent(err) || errors.Is(err, errClientBody) || gaveUp && time.Since(began) < lateAfter {
		return
	}
	s.doubt(req)
}

// doubt takes what became of req for a sign that the apiserver may not serve the node
// any more, if it answers such requests itself. That an aggregated API is out of order
// is for its clients to know.
func (s *server) doubt(req *http.Request) {
	if info, _ := request.RequestInfoFrom(req.Context()); answersItself(info) && s.health.down() == nil {
		s.doubts.note(time.Now())
	}
}

// unconnected draws conclusions from a failure to connect that is no silence. Where no
// connection stands it is a loss. Where one does, the failure may be the doing of
// whoever has many opened (upgrades have one each): a load balancer allows so
// many to each client, and this machine has so many ports and files.
func (s *server) unconnected(err error) {
	if s.health.down() == nil && s.lines.anyStands() {
		s.doubts.raise(time.Now())
		return
	}
	s.health.failed(time.Now(), err)
}

// badAnswer reports whether code is one that says nothing but: not now.
func badAnswer(code int) bool {
	switch code {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusTooManyRequests:
		return true
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
