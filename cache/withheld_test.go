package cache

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatIsWithheldIsAnsweredToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := ""
		u := newUpstream()
		u.shows("100", podJSON("web", "60"))
		may := make(chan struct{})
		c := startCache(t, u, func(o *Options) {
			o.Withheld = func() string { return why }
			o.AwaitMaySend = func(ctx context.Context) error {
				select {
				case <-may:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
		get(t, c, urlPods)
		u.goAway()
		synctest.Wait()
		postEvent(t.Context(), t, c, "e", "")
		before := get(t, c, urlPods)
		why = "it may be another cluster's"
		for _, url := range []string{urlPods, urlPods + "?resourceVersion=0"} {
			res, err := c.RoundTrip(newRequest(t.Context(), http.MethodGet, url))
			if err == nil {
				res.Body.Close()
				t.Errorf("GET %s: %s", url, res.Status)
			} else if !strings.Contains(err.Error(), why) {
				t.Errorf("GET %s: %v", url, err)
			}
		}
		why = ""
		if got := get(t, c, urlPods); got != before {
			t.Errorf("afterwards: %s", got)
		}
		var events atomic.Int64
		u.on("list", func(r *http.Request) *http.Response {
			if strings.HasSuffix(r.URL.Path, "/events") {
				events.Add(1)
			}
			return respond(http.StatusCreated, "{}")
		})
		u.comeBack()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := events.Load(); n != 0 {
			t.Errorf("%d events are sent to a cloud that may be another cluster", n)
		}
		close(may)
		time.Sleep(time.Minute)
		if n := events.Load(); n != 1 {
			t.Errorf("%d events are sent to the same cluster", n)
		}
	})
}
