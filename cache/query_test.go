package cache

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/query"
)

// Apiservers read only the first Accept header.
func TestTheFirstAcceptHeaderCounts(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		r := newRequest(t.Context(), method, "/api/v1/namespaces/ns/pods/p")
		r.Header["Accept"] = []string{"application/json", "application/vnd.kubernetes.protobuf"}
		info, _ := request.RequestInfoFrom(r.Context())
		x := &exchange{req: r, params: query.ParamsOf(r), info: info}
		q := query.Of(r, x.params, info, query.NodeUser)
		if method == http.MethodPut {
			q = x.written()
		}
		if q == nil || q.Accept != "application/json" {
			t.Errorf("%s: %+v", method, q)
		}
	}
}

// Names that are longer than Kubernetes allows are relayed, and not stored.
func TestNamesThatAreTooLongAreNotCached(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	tests := map[string]struct {
		url  string
		kept bool
	}{
		"name":                        {"/api/v1/namespaces/ns/pods/" + x(254), false},
		"longest name":                {"/api/v1/namespaces/ns/pods/" + x(253), true},
		"namespace":                   {"/api/v1/namespaces/" + x(64) + "/pods/a", false},
		"longest namespace":           {"/api/v1/namespaces/" + x(63) + "/pods/a", true},
		"resource":                    {"/api/v1/namespaces/ns/" + x(254) + "/a", false},
		"group":                       {"/apis/" + x(254) + "/v1/namespaces/ns/r/a", false},
		"longest group":               {"/apis/" + x(253) + "/v1/namespaces/ns/r/a", true},
		"version":                     {"/apis/g/" + x(64) + "/namespaces/ns/r/a", false},
		"name of a namespace":         {"/api/v1/namespaces/" + x(64), false},
		"longest name of a namespace": {"/api/v1/namespaces/" + x(63), true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			u := newUpstream()
			u.onText("get", http.StatusForbidden, "{}")
			c := startCache(t, u)
			if got := get(t, c, test.url); got != "403" {
				t.Errorf("the answer is %q", got)
			}
			u.goAway()
			if got := get(t, c, test.url); (got == errRefused.Error()) == test.kept {
				t.Errorf("offline: %q", got)
			}
		})
	}
}

func TestLongSelectorsAreNotCached(t *testing.T) {
	u := newUpstream()
	u.shows("100", podJSON("a", "50"))
	c := startCache(t, u)
	list := func(n int) string {
		return get(t, c, fmt.Sprintf("%s?labelSelector=a&fieldSelector=spec.x%%3D%s", urlPods, strings.Repeat("x", n-len("aspec.x="))))
	}
	for _, n := range []int{query.MaxSelectors, query.MaxSelectors + 1} {
		if got := list(n); got != "100: a=50" {
			t.Errorf("%d bytes: %q", n, got)
		}
	}
	if n := len(c.views.All()); n != 1 {
		t.Errorf("%d views are kept", n)
	}
	if _, got := c.views.Used(); got < query.MaxSelectors {
		t.Errorf("a view with %d bytes of selectors counts %d bytes", query.MaxSelectors, got)
	}
}
