package cache

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Apiservers ignore what follows the token in a header, so the spool does not keep it.
func TestASpooledEventKeepsOnlyTheTokenOfItsHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		u.shows("100", podJSON("a", "50"))
		c := startCache(t, u)
		ctx := as(t.Context(), "valid")
		ask(ctx, t, c, http.MethodGet, urlPods)
		u.goAway()
		synctest.Wait()

		r := newRequest(ctx, http.MethodPost, "/api/v1/namespaces/ns/events")
		r.Header.Set("Authorization", "Bearer valid "+strings.Repeat("x", 55<<10))
		r.Header.Set("Content-Type", "application/json")
		r.GetBody = func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader([]byte(`{"metadata":{"name":"e"},"involvedObject":{"namespace":"ns"}}`))), nil
		}
		r.Body, _ = r.GetBody()
		res, err := c.RoundTrip(r)
		if err != nil || res.StatusCode != http.StatusCreated {
			t.Fatalf("POST: %v, %v", res, err)
		}
		sent := make(chan string, 1)
		u.on("list", func(r *http.Request) *http.Response {
			if strings.HasSuffix(r.URL.Path, "/events") {
				sent <- r.Header.Get("Authorization")
			}
			return respond(http.StatusCreated, "{}")
		})
		u.comeBack()
		select {
		case got := <-sent:
			if got != "Bearer valid" {
				t.Errorf("sent with a header of %d bytes: %.20s...", len(got), got)
			}
		case <-time.After(time.Minute):
			t.Error("the event is not sent")
		}
	})
}
