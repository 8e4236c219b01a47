package cache

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Views must not keep the URL of a request in memory: it can have a megabyte.
func TestViewsDoNotKeepURLs(t *testing.T) {
	const requests, long = 10, 1 << 20
	for what, url := range map[string]string{
		"lists":          "/api/v1/namespaces/ns-%d/pods?labelSelector=l&pretty=",
		"single objects": "/api/v1/nodes/node-%d?pretty=",
	} {
		t.Run(what, func(t *testing.T) {
			u := newUpstream()
			u.shows("100", podJSON("a", "50"))
			u.on("get", func(r *http.Request) *http.Response {
				name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
				return respond(http.StatusOK, fmt.Sprintf(`{"kind":"Node","apiVersion":"v1","metadata":{"name":%q,"resourceVersion":"50"}}`, name))
			})
			c := startCache(t, u)
			u.forget()
			before := heap()
			for i := range requests {
				if got := get(t, c, fmt.Sprintf(url, i)+strings.Repeat("x", long)); !strings.Contains(got, "50") {
					t.Fatalf("it is answered %q", got)
				}
			}
			u.forget()
			if grown := heap() - before; grown > requests*long/10 {
				t.Errorf("%d requests with URLs of %d KiB leave %d KiB in memory", requests, long>>10, grown>>10)
			}
			u.goAway()
			if got := get(t, c, fmt.Sprintf(url, 7)); !strings.Contains(got, "50") {
				t.Errorf("offline it is answered %q", got)
			}
		})
	}
}
