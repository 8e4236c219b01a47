package cache

import (
	"bytes"
	"context"
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

		postEvent(ctx, t, c, "e", "Bearer valid "+strings.Repeat("x", 55<<10))
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

// The events that clients create afterwards show that the apiserver does not fail at all of them.
func TestASpooledEventAtWhichTheAPIServerFailsIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		u.shows("100", podJSON("a", "50"))
		c := startCache(t, u)
		u.goAway()
		synctest.Wait()
		postEvent(t.Context(), t, c, "bad", "")
		u.on("list", func(r *http.Request) *http.Response {
			if body, _ := io.ReadAll(r.Body); bytes.Contains(body, []byte("bad")) {
				return respond(http.StatusInternalServerError, "{}")
			}
			return respond(http.StatusCreated, "{}")
		})
		u.comeBack()
		time.Sleep(time.Hour)
		if n := c.writes.events.Len(); n != 1 {
			t.Errorf("%d events wait while the apiserver may fail at all", n)
		}
		for range 10 {
			postEvent(t.Context(), t, c, "good", "")
			time.Sleep(2 * time.Minute)
		}
		if n := c.writes.events.Len(); n != 0 {
			t.Errorf("%d events wait", n)
		}
	})
}
