package cache

import (
	"net/http"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// Apiservers negotiate by the first Accept header alone.
func TestTheFirstAcceptHeaderCounts(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		r := newRequest(t.Context(), method, "/api/v1/namespaces/ns/pods/p")
		r.Header["Accept"] = []string{"application/json", "application/vnd.kubernetes.protobuf"}
		info, _ := request.RequestInfoFrom(r.Context())
		x := &exchange{req: r, params: paramsOf(r), info: info}
		q := queryOf(r, x.params, info, nodeUser)
		if method == http.MethodPut {
			q = x.written()
		}
		if q == nil || q.accept != "application/json" {
			t.Errorf("%s: %+v", method, q)
		}
	}
}
