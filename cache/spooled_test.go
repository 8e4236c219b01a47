package cache

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Apiservers ignore what follows the token in a header, so the spool does not keep it. A pod may post any Event while the
// cloud is away, and takes no name from the node.
func TestSpooledEventsAreSentAsWhoPostedThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		u.shows("100", podJSON("a", "50"))
		c := startCache(t, u)
		ctx := as(t.Context(), "valid")
		ask(ctx, t, c, http.MethodGet, urlPods)
		u.goAway()
		synctest.Wait()

		postEvent(ctx, t, c, "e", "Bearer valid "+strings.Repeat("x", 55<<10))
		postEvent(t.Context(), t, c, "e", "")
		sent := make(chan string, 2)
		u.on("list", func(r *http.Request) *http.Response {
			if strings.HasSuffix(r.URL.Path, "/events") {
				sent <- r.Header.Get("Authorization")
			}
			return respond(http.StatusCreated, "{}")
		})
		u.comeBack()
		time.Sleep(time.Minute)
		synctest.Wait()
		close(sent)
		if pod, node := <-sent, <-sent; pod != "Bearer valid" || node != "" || c.writes.events.Len() != 0 {
			t.Errorf("sent with headers of %d and %d bytes: %.20s, %.20s", len(pod), len(node), pod, node)
		}
	})
}

func postEvent(ctx context.Context, t *testing.T, c *Cache, name, authorization string) {
	t.Helper()
	r := newRequest(ctx, http.MethodPost, "/api/v1/namespaces/ns/events")
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	r.Header.Set("Content-Type", "application/json")
	r.GetBody = func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(`{"metadata":{"name":"` + name + `"},"involvedObject":{"namespace":"ns"}}`)), nil
	}
	r.Body, _ = r.GetBody()
	res, err := c.RoundTrip(r)
	if err != nil || res.StatusCode != http.StatusCreated {
		t.Fatalf("POST: %v, %v", res, err)
	}
	res.Body.Close()
}
